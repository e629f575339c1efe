"""Read one owner's table (in plaintext) and make the shares of its sums or rows. Only shares leave the owner."""
