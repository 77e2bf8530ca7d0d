"""An HTTP server in front of an engine, with the shapes of OpenAI's API. Needs the extra
`serve`."""
