"""What requests and answers look like on the wire, one file for each endpoint."""
