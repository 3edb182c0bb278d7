"""A server that speaks Tinker's protocol, with a tiny model behind it: its losses are written from Tinker's pages."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from aiohttp import web
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

Weights = dict[str, torch.Tensor]
KEY = "tml-a-key-of-the-test"


class TinkerServer:
    """Adapters, optimisers and snapshots in this process; `url` is its address."""

    def __init__(self, model: Path) -> None:
        self.name = str(model)
        self._folder = model
        self._network: Any = None
        self._tokenizer: Any = None
        self._ids = itertools.count()
        self._models: dict[str, _Trained] = {}
        self.states: dict[str, tuple[int, bool, Weights, dict[str, Any]]] = {}
        """Rank, with output layer, adapter and optimiser by address."""
        self.snapshots: dict[str, Weights] = {}
        self._samplers: dict[str, str | None] = {}
        self._exported: dict[str, Path] = {}
        self._futures: dict[str, Any] = {}
        self._made: dict[tuple[str, int], str] = {}
        """Futures by model and number of a request: one that is sent again is carried out once."""
        self.initial: Weights | None = None
        """The adapter that a new model gets instead of a random one."""
        self.steps: list[dict[str, float]] = []
        """The settings of each optimiser step."""
        self.seen: list[str] = []
        """The paths of all requests."""
        self.billed = {"trained": 0, "scored": 0}
        """Tokens of all passes with gradients, and of those without."""
        self.sampled: list[str | None] = []
        """The address of the weights of each request for samples; None: the base model's."""
        self.lost: set[str] = set()
        """Paths whose next answer is lost on its way, after the request has been carried out."""
        self.until: dict[str, int] = {}
        """Number of optimiser steps, by path, after which it is never answered."""
        self.refused: dict[str, web.Response | Callable[[], web.Response]] = {}
        """Answers by path in the place of the server's own."""
        self.exports = True
        self.urls: Any = None
        """Answers for the addresses of exported files in the place of the server's own."""
        self.url = ""

    # --- the models ---

    def network(self, rank: int, unembed: bool) -> Any:
        """Return the model under an adapter; all adapters of a server are alike."""
        if self._network is None:
            torch.manual_seed(0)
            base = AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.float32)
            names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
            targets = [*names, "lm_head"] if unembed else names
            self._network = get_peft_model(base, LoraConfig(r=rank, lora_alpha=32, target_modules=targets))
        return self._network

    def weights(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return ((name, one) for name, one in self._network.named_parameters() if one.requires_grad)

    def put(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, parameter in self.weights():
                parameter.copy_(weights[name])

    def new_model(self, model: str, rank: int, unembed: bool, seed: int | None) -> None:
        self.network(rank, unembed)
        generator = torch.Generator().manual_seed(seed or 0)
        first = {
            name: torch.zeros_like(one) if "lora_B" in name else 0.1 * torch.randn(one.shape, generator=generator)
            for name, one in self.weights()
        }
        self._models[model] = _Trained(rank, unembed, self.initial or first)

    # --- the protocol ---

    def future(self, result: Any, **more: Any) -> web.Response:
        request_id = f"future-{next(self._ids)}"
        self._futures[request_id] = result
        return web.json_response({"request_id": request_id, **more})

    async def retrieve(self, request: web.Request) -> web.Response:
        asked = await request.json()
        result = self._futures[asked["request_id"]]
        if asked["request_id"].endswith("0") and asked["request_id"] not in self._made.values():
            self._made[asked["request_id"], 0] = asked["request_id"]  # a tenth of the results takes a second poll
            return web.json_response({"type": "try_again", "request_id": asked["request_id"], "queue_state": "active"})
        if isinstance(result, bytes):
            return web.Response(body=result, content_type="application/x-protobuf")
        return web.json_response(result)

    async def create_model(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["base_model"] != self.name:
            return web.json_response({"error": "no such model"}, status=400)
        model, lora = f"{asked['session_id']}:train:{asked['model_seq_id']}", asked["lora_config"]
        self.new_model(model, lora["rank"], lora["train_unembed"], lora["seed"])
        return self.future({"model_id": model, "type": "create_model"})

    async def load_weights(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["path"] not in self.states:
            return self.future({"error": f"no checkpoint at {asked['path']}", "category": "user"})
        model = f"{asked['session_id']}:train:{asked['model_seq_id']}"
        rank, unembed, weights, optimiser = self.states[asked["path"]]
        self.network(rank, unembed)
        self._models[model] = _Trained(rank, unembed, weights, optimiser)
        return self.future({"path": asked["path"], "type": "load_weights"})

    async def get_info(self, request: web.Request) -> web.Response:
        asked = await request.json()
        info = {"model_id": asked["model_id"], "model_data": {"model_name": self.name}, "type": "get_info"}
        return web.json_response(info)

    async def forward_backward(self, request: web.Request) -> web.Response:
        from tinker.proto import tinker_public_pb2 as wire

        asked = wire.ForwardBackwardRequest()
        asked.ParseFromString(await request.read())
        return self._once(asked.model_id, asked.seq_id, lambda: self._pass(asked))

    def _pass(self, asked: Any) -> bytes:
        from tinker.proto import tinker_public_pb2 as wire

        trained = self._models[asked.model_id]
        self.put(trained.weights)
        settings = {name: value.number for name, value in asked.loss_fn_config_v2.items()}
        answer = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        record = answer.loss_fn_outputs.add(num_datums=len(asked.data))
        pieces, offsets, total = [], [0], 0.0
        self._network.zero_grad()
        for datum in asked.data:
            tokens = np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32)
            self.billed["scored" if asked.forward_only else "trained"] += len(tokens)
            given = {name: _array(one) for name, one in datum.loss_fn_inputs.items()}
            logits = self._network(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
            own = logits.log_softmax(-1).gather(1, given["target_tokens"].long()[:, None])[:, 0]
            loss = LOSSES[asked.loss_fn](own, given, settings)
            if not asked.forward_only:
                loss.backward()
            total += float(loss.detach())
            pieces.append(own.detach().numpy().astype(np.float32).tobytes())
            offsets.append(offsets[-1] + len(pieces[-1]))
        for name, parameter in () if asked.forward_only else self.weights():
            trained.gradients[name] = trained.gradients.get(name, 0) + parameter.grad.detach().clone()
        field = record.fields["logprobs"]
        field.data, field.offsets = b"".join(pieces), np.array(offsets, dtype=np.int64).tobytes()
        field.dtype = wire.DTYPE_FLOAT32
        answer.metrics["loss:sum"] = total
        return answer.SerializeToString()

    async def optim_step(self, request: web.Request) -> web.Response:
        asked = await request.json()

        def step() -> Any:
            trained, adam = self._models[asked["model_id"]], asked["adam_params"]
            self.steps.append(adam)
            norm = float(torch.sqrt(sum((one**2).sum() for one in trained.gradients.values())))
            trained.step(adam)
            return {"metrics": {"unclipped_grad_l2_norm:max": norm}}

        return self._once(asked["model_id"], asked["seq_id"], step)

    async def save(self, request: web.Request) -> web.Response:
        asked = await request.json()
        kind = request.path.rpartition("/")[2]

        def save() -> Any:
            trained = self._models[asked["model_id"]]
            run = asked["model_id"].replace(":", "-")
            if kind == "save_weights":
                path = f"tinker://{run}/weights/{asked['path']}"
                self.states[path] = (trained.rank, trained.unembed, trained.copy(), trained.optimiser())
            elif kind == "save_weights_for_sampler":
                path = f"tinker://{run}/sampler_weights/{asked['path']}"
                self.snapshots[path] = trained.copy()
            else:
                path = f"tinker://{run}/external_weights/{asked['path']}"
                self.put(trained.weights)
                folder = self._folder.parent / f"exported-{next(self._ids)}"
                self._network.save_pretrained(folder, save_embedding_layers=False)
                self._exported[path] = folder
            return {"path": path, "type": kind}

        if kind == "save_weights_external" and not self.exports:
            return web.json_response({"detail": "Not Found"}, status=404)
        return self._once(asked["model_id"], asked["seq_id"], save)

    async def external_urls(self, request: web.Request) -> web.Response:
        if self.urls is not None:
            answer: web.Response = await self.urls(request)
            return answer
        path = f"tinker://{request.match_info['run']}/external_weights/{request.match_info['name']}"
        folder = self._exported[path]
        urls = {file.name: f"{self.url}/files/{folder.name}/{file.name}" for file in folder.iterdir()}
        return web.json_response({"urls": urls, "expires": "2030-01-01T00:00:00Z"})

    async def file(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self._folder.parent / request.match_info["folder"] / request.match_info["name"])

    def _once(self, model: str, number: int, carry_out: Callable[[], Any]) -> web.Response:
        if (model, number) not in self._made:
            request_id = f"future-{next(self._ids)}"
            self._futures[request_id] = carry_out()
            self._made[model, number] = request_id
        return web.json_response({"request_id": self._made[model, number]})

    # --- sampling ---

    async def create_sampler(self, request: web.Request) -> web.Response:
        asked = await request.json()
        path = asked.get("model_path")
        if path is not None and path not in self.snapshots:
            return web.json_response({"detail": f"no weights at {path}"}, status=404)
        sampler = f"sampler-{next(self._ids)}"
        self._samplers[sampler] = path
        return web.json_response({"sampling_session_id": sampler, "type": "create_sampling_session"})

    async def sampler(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.json_response({"sampler_id": name, "base_model": self.name, "model_path": self._samplers[name]})

    async def sample(self, request: web.Request) -> web.Response:
        from tinker.proto import tinker_public_pb2 as wire

        asked = await request.json()
        prompt = [token for chunk in asked["prompt"]["chunks"] for token in chunk["tokens"]]
        settings, path = asked["sampling_params"], self._samplers[asked["sampling_session_id"]]
        self.sampled.append(path)
        self.network(4, unembed=False)
        answer = wire.SampleResponse()
        if asked.get("prompt_logprobs"):
            answer.prompt_logprobs = self.score(prompt, path)
        for index in range(asked["num_samples"]):
            tokens, logprobs, ended = self.draw(prompt, settings, path, index)
            answer.sequences.add(
                stop_reason=wire.STOP_REASON_STOP if ended else wire.STOP_REASON_LENGTH,
                tokens=np.array(tokens, dtype=np.int32).tobytes(),
                logprobs=np.array(logprobs, dtype=np.float32).tobytes(),
            )
        ids = [f"sequence-{next(self._ids)}" for _ in range(asked["num_samples"])]
        return self.future(answer.SerializeToString(), sample_sequence_ids=ids)

    @torch.no_grad()
    def draw(
        self, prompt: list[int], settings: dict[str, Any], path: str | None, index: int
    ) -> tuple[list[int], list[float], bool]:
        """Return tokens of a completion, their log-probabilities, and whether a stop token ended it."""
        if path is not None:
            self.put(self.snapshots[path])
        generator = torch.Generator().manual_seed((settings.get("seed") or 0) * 1009 + index)
        ids, cache, tokens, logprobs = torch.tensor([prompt]), None, [], []
        for _ in range(settings["max_tokens"]):
            with self._network.disable_adapter() if path is None else contextlib.nullcontext():
                output = self._network(input_ids=ids, past_key_values=cache, use_cache=True)
            cache, logits = output.past_key_values, output.logits[0, -1]
            chances = logits.log_softmax(-1)
            if settings["temperature"] == 0:
                token = int(chances.argmax())
            else:
                odds = (logits / settings["temperature"]).softmax(-1)
                token = int(torch.multinomial(odds, 1, generator=generator))
            tokens.append(token)
            logprobs.append(float(chances[token]))
            stops = settings.get("stop") or ()
            if token in stops or any(one in self.decode(tokens) for one in stops if isinstance(one, str)):
                return tokens, logprobs, True
            ids = torch.tensor([[token]])
        return tokens, logprobs, False

    @torch.no_grad()
    def score(self, prompt: list[int], path: str | None) -> bytes:
        """Return the log-probability of each token of a prompt; the first has none."""
        if path is not None:
            self.put(self.snapshots[path])
        with self._network.disable_adapter() if path is None else contextlib.nullcontext():
            chances = self._network(input_ids=torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
        found = chances.gather(1, torch.tensor(prompt[1:])[:, None])[:, 0].numpy()
        return np.array([np.nan, *found], dtype=np.float32).tobytes()

    def decode(self, tokens: list[int]) -> str:
        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained(self._folder)
        return str(self._tokenizer.decode(tokens))

    # --- HTTP ---

    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v1/")
        self.seen.append(path)
        if path not in ("client/config",) and request.headers.get("X-API-Key") != KEY and "files/" not in path:
            return web.json_response({"detail": "Invalid API key"}, status=401)
        if len(self.steps) >= self.until.get(path, len(self.steps) + 1):
            await asyncio.sleep(3600)
        if path in self.refused:
            answer = self.refused[path]
            return answer() if callable(answer) else answer
        response: web.StreamResponse = await handler(request)
        if path in self.lost:
            self.lost.remove(path)
            assert request.transport is not None
            request.transport.abort()
        return response

    def app(self) -> web.Application:
        async def nothing(request: web.Request) -> web.Response:
            return web.json_response({})

        async def session(request: web.Request) -> web.Response:
            return web.json_response({"session_id": f"session-{next(self._ids)}", "type": "create_session"})

        async def capabilities(request: web.Request) -> web.Response:
            return web.json_response({"supported_models": [{"model_name": self.name}]})

        async def config(request: web.Request) -> web.Response:
            return web.json_response({"use_pyqwest_transport": False})

        @web.middleware
        async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
            return await self._watch(request, handler)

        app = web.Application(middlewares=[watch], client_max_size=1 << 26)
        post = {
            **{"client/config": config, "client/dynamic_config": nothing, "create_session": session},
            **{"session_heartbeat": nothing, "create_sampling_session": self.create_sampler},
            **{"create_model": self.create_model, "get_info": self.get_info, "load_weights": self.load_weights},
            **{"forward_backward": self.forward_backward, "optim_step": self.optim_step, "asample": self.sample},
            **{"save_weights": self.save, "save_weights_for_sampler": self.save, "save_weights_external": self.save},
            **{"retrieve_future": self.retrieve, "sessions/{name}/finish": nothing, "telemetry": nothing},
        }
        app.add_routes([web.post(f"/api/v1/{path}", handler) for path, handler in post.items()])
        app.add_routes(
            [
                web.get("/api/v1/get_server_capabilities", capabilities),
                web.get("/api/v1/samplers/{name}", self.sampler),
                web.get(
                    "/api/v1/training_runs/{run}/checkpoints/external_weights/{name}/external_weights_urls",
                    self.external_urls,
                ),
                web.get("/files/{folder}/{name}", self.file),
            ]
        )
        return app


class _Trained:
    """An adapter under training, with AdamW as PyTorch's documentation defines it."""

    def __init__(self, rank: int, unembed: bool, weights: Weights, optimiser: dict[str, Any] | None = None) -> None:
        self.rank, self.unembed = rank, unembed
        self.weights = {name: one.clone() for name, one in weights.items()}
        self.gradients: Weights = {}
        state = optimiser or {"count": 0, "first": {}, "second": {}}
        self.count = state["count"]
        self.first, self.second = dict(state["first"]), dict(state["second"])

    def copy(self) -> Weights:
        return {name: one.clone() for name, one in self.weights.items()}

    def optimiser(self) -> dict[str, Any]:
        return {"count": self.count, "first": dict(self.first), "second": dict(self.second)}

    def step(self, adam: dict[str, float]) -> None:
        self.count += 1
        for name, gradient in self.gradients.items():
            first = adam["beta1"] * self.first.get(name, 0) + (1 - adam["beta1"]) * gradient
            second = adam["beta2"] * self.second.get(name, 0) + (1 - adam["beta2"]) * gradient**2
            self.first[name], self.second[name] = first, second
            size = (second / (1 - adam["beta2"] ** self.count)).sqrt() + adam["eps"]
            kept = self.weights[name] * (1 - adam["learning_rate"] * adam["weight_decay"])
            self.weights[name] = kept - adam["learning_rate"] * (first / (1 - adam["beta1"] ** self.count)) / size
        self.gradients = {}


def _array(tensor: Any) -> torch.Tensor:
    kind = {1: np.float32, 2: np.int64}[tensor.dtype]
    return torch.from_numpy(np.frombuffer(tensor.dense, dtype=kind).copy())


def _ppo(own: torch.Tensor, given: dict[str, torch.Tensor], settings: dict[str, float]) -> torch.Tensor:
    ratio = torch.exp(own - given["logprobs"])
    clipped = torch.clamp(ratio, settings["clip_low_threshold"], settings["clip_high_threshold"])
    return -torch.min(ratio * given["advantages"], clipped * given["advantages"]).sum()


def _cispo(own: torch.Tensor, given: dict[str, torch.Tensor], settings: dict[str, float]) -> torch.Tensor:
    ratio = torch.exp(own - given["logprobs"])
    clipped = torch.clamp(ratio, settings["clip_low_threshold"], settings["clip_high_threshold"])
    return -(clipped.detach() * own * given["advantages"]).sum()


def _cross_entropy(own: torch.Tensor, given: dict[str, torch.Tensor], settings: dict[str, float]) -> torch.Tensor:
    return -(own * given["weights"]).sum()


LOSSES = {"cross_entropy": _cross_entropy, "ppo": _ppo, "cispo": _cispo}


@contextlib.contextmanager
def serving(model: Path) -> Iterator[TinkerServer]:
    """Run a server for a model's folder in a thread while the block runs."""
    server = TinkerServer(model)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ended = asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        ready.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
