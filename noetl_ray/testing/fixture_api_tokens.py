"""Fixture endpoints with OAuth 2.0 client credentials: a token endpoint, and one that asks for it.

The client is ``demo`` with the secret ``demo-client-secret``. The protected endpoint repeats the
header it got, so that a test sees whether a token comes out where it must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

if TYPE_CHECKING:
    from noetl_ray.testing.fixture_api_state import FixtureState

CLIENT_ID = "demo"
CLIENT_SECRET = "demo-client-secret"


def router(state: FixtureState) -> APIRouter:
    """Tokens, and what they open."""
    routes = APIRouter(prefix="/api/v1")

    @routes.post("/oauth/token")
    async def token(request: Request, expires_in: int = 3600) -> JSONResponse:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        given = {key: values[0] for key, values in form.items()}
        if given.get("grant_type") != "client_credentials":
            return JSONResponse({"error": "unsupported_grant_type"}, status_code=400)
        if (given.get("client_id"), given.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        state.tokens_issued += 1
        made = f"fixture-token-{state.tokens_issued:06d}"
        state.tokens.add(made)
        return JSONResponse(
            {"access_token": made, "token_type": "Bearer", "expires_in": expires_in}
        )

    @routes.post("/oauth/revoke")
    async def revoke() -> JSONResponse:
        state.tokens.clear()
        return JSONResponse({"issued": state.tokens_issued})

    @routes.get("/protected")
    async def protected(request: Request) -> JSONResponse:
        header = request.headers.get("authorization", "")
        if header.removeprefix("Bearer ") not in state.tokens:
            return JSONResponse({"error": "invalid_token"}, status_code=401)
        return JSONResponse({"seen": header, "issued": state.tokens_issued})

    return routes
