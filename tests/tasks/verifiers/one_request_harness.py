"""A harness of verifiers that sends the prompt once, in this process."""

from typing import Any

import httpx
import verifiers.v1 as vf


class OneRequest(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        *_: Any,
        **__: Any,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        shown = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            shown.append({"role": "user", "content": prompt})
        else:
            shown += [{"role": message.role, "content": message.content} for message in prompt]
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": shown},
            )
        return vf.ProgramResult(exit_code=0 if answer.is_success else 1, stdout="", stderr=answer.text)


__all__ = ["OneRequest"]
