"""The HTTP front end: the API below `/api/v1`, the sign-in, and the client of both. Needs the extra `maos[serve]`."""
