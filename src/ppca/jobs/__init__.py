"""Programs that RUN ON SERVERS and see shares only: nothing here touches an owner's rows or a receiver's result."""
