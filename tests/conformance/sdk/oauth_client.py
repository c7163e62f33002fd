"""The official Python client, unmodified, authorizes at an authorization server and calls ceased.

usage: python oauth_client.py URL
"""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

answer = None


class Storage:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def visit(url):
    global answer
    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = (await browser.get(url)).headers["location"]


async def come_back():
    found = parse_qs(urlsplit(answer).query)
    return found["code"][0], found.get("state", [None])[0]


async def main():
    storage = Storage()
    metadata = OAuthClientMetadata(
        client_name="ceased tests",
        redirect_uris=["http://127.0.0.1:1/callback"],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(sys.argv[1], metadata, storage, visit, come_back)
    async with httpx.AsyncClient(auth=auth, timeout=60, trust_env=False) as http:
        async with streamable_http_client(sys.argv[1], http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                said = await session.call_tool("echo", {"text": "authorized"})
                print(said.content[0].text, storage.tokens.scope)


asyncio.run(main())
