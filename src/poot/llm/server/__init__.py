"""An HTTP server in front of an engine, with the shapes of OpenAI's API. Needs the extra
`serve`."""

from poot.extras import library

library("fastapi", "poot.llm.server")
