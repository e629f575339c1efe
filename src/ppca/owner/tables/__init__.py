"""An owner's table, whatever it is: files and frames, opened once for their schema and streamed."""
