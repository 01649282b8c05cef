"""Vision-language models.

``vlm:NAME-OR-FOLDER[@REVISION]``: image-text-to-text models of the transformers library (LLaVA, Qwen-VL and others).
Questions go through the model's own chat template, one image per question, and are answered greedily.
``vlm+http://HOST:PORT[/v1]#MODEL``: any server that speaks the chat-completions dialect with images, as vLLM,
llama.cpp, Ollama and many hosted services do. The image travels inside the request as a data URL.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cv2
import PIL.Image
import torch

from holdfast.core.errors import SampleError, UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import check_complete, hub_errors, resolve_device, weights_sha256
from holdfast.core.protocols import Refusal
from holdfast.core.remote import SERVER_OPTIONS, RemoteServer, TryAgainError, check_limits, open_server
from holdfast.core.types import Image
from holdfast.models.options import display_name
from holdfast.models.torch_classifier import exact, picture
from holdfast.models.transformers import hub_place, shape_of

MAX_NEW_TOKENS = 32
"""An answer is a class's name; what a model adds to it is cut here."""

INSTEAD = "name a folder with vlm:FOLDER or a server with vlm+http:"
PRECISIONS = ("auto", "float32", "bfloat16", "float16")


class TransformersVlm:
    """A ``VisionLanguageModel`` around a model and its processor.

    Prompts of a batch are padded on the left, so that every answer begins at the same place. In float32 the answers do
    not depend on the batch; in half precision a near tie between two words may.
    """

    def __init__(self, name: str, model: Any, processor: Any, *, device: str, max_new_tokens: int) -> None:
        self.name = name
        self.device = device
        # that may ask at once: a GPU need not wait while one of them prepares images and starts each step
        self.threads = 1 if device == "cpu" else 2
        self._words = threading.Lock()  # tokenizers serve one thread at a time
        self.fingerprint = fingerprint(
            {
                "architecture": f"{type(model).__name__}/{json.dumps(shape_of(model.config), sort_keys=True)}",
                "weights": weights_sha256(model),
                "dtype": str(model.dtype),
                "processor": _processor_settings(processor),
                "max_new_tokens": max_new_tokens,
            }
        )
        self._model = model.eval().requires_grad_(False).to(device)
        self._processor = processor
        # In place of the model's own, with which generate would fill every gap of one that it is given.
        model.generation_config = _greedy(model, processor.tokenizer, max_new_tokens)
        processor.tokenizer.padding_side = "left"

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """Return one answer per question about its RGB image; see ``VisionLanguageModel``."""
        if not images:
            return []
        pictures = [picture(image, crops_centre=False) for image in images]
        prompts = [self._prompt(question) for question in questions]
        try:
            return self._generate(pictures, prompts)
        except (ValueError, IndexError) as error:
            raise SampleError(f"{self.name} cannot be asked about this image: {first_line(error)}") from error

    def _prompt(self, question: str) -> str:
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
        prompt: str = self._processor.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)
        return prompt

    def _generate(self, pictures: list[PIL.Image.Image], prompts: list[str]) -> list[str]:
        with self._words:
            inputs = self._processor(
                text=prompts, images=[[picture] for picture in pictures], padding=True, return_tensors="pt"
            ).to(self.device)
        for key, value in inputs.items():
            if value.is_floating_point():
                inputs[key] = value.to(self._model.dtype)
        with torch.inference_mode(), exact():
            tokens = self._model.generate(**inputs)
        written = tokens[:, inputs["input_ids"].shape[1] :]
        with self._words:
            answers: list[str] = self._processor.tokenizer.batch_decode(written.tolist(), skip_special_tokens=True)
        return [answer.strip() for answer in answers]


def load(name: Name, *, device: str) -> TransformersVlm:
    """Load a model by its hub name or local folder, with its own processor and chat template.

    Weights are read from safetensors only and code in the repository is never run. Options: ``max_new_tokens=32``;
    ``dtype=auto|float32|bfloat16|float16`` (auto: bfloat16 on a GPU, float32 elsewhere).
    """
    options = checked(name, {"max_new_tokens": int, "dtype": str})
    limit = options.get("max_new_tokens", MAX_NEW_TOKENS)
    if not 1 <= limit <= 4096:
        raise UserError(f"vlm: option max_new_tokens={limit} should be between 1 and 4096")
    device = resolve_device(device)
    shown = hub_place(name)[3]
    model, processor = _fetch(name, _dtype(options.get("dtype", "auto"), device))
    if not getattr(processor, "chat_template", None):
        raise UserError(f"vlm:{shown} has no chat template, which is needed to ask it questions")
    return TransformersVlm(display_name(name, shown), model, processor, device=device, max_new_tokens=limit)


def _dtype(text: str, device: str) -> torch.dtype:
    if text not in PRECISIONS:
        raise unknown("dtype", text, PRECISIONS)
    if text == "auto":
        text = "bfloat16" if device.startswith("cuda") else "float32"
    dtype: torch.dtype = getattr(torch, text)
    return dtype


def _fetch(name: Name, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return model and processor; only safetensors are read, and code next to them is never run."""
    import transformers

    where, revision, local, body = hub_place(name)
    shown, trust = f"vlm:{body}", {"revision": revision, "trust_remote_code": False}
    wrong = "is not an image-text-to-text model that can be loaded"
    with hub_errors(shown, local=local, instead=INSTEAD, wrong=wrong):
        processor = transformers.AutoProcessor.from_pretrained(where, **trust)
        model, report = transformers.AutoModelForImageTextToText.from_pretrained(
            where, **trust, use_safetensors=True, output_loading_info=True, dtype=dtype
        )
    check_complete(report, shown)
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise UserError(f"{shown} has no processor for images and text")
    return model, processor


def _greedy(model: Any, tokenizer: Any, max_new_tokens: int) -> Any:
    """Set plain greedy decoding: a repository's own settings may sample, search with beams or punish repetition."""
    import transformers

    own = model.generation_config
    ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = ends[0] if isinstance(ends, list) else ends
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
    return transformers.GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        bos_token_id=own.bos_token_id,
        eos_token_id=ends,
        pad_token_id=pad,
    )


def _processor_settings(processor: Any) -> dict[str, Any]:
    """Return what prepares images and prompts, without what differs between library versions and machines."""
    images: dict[str, Any] = json.loads(processor.image_processor.to_json_string())
    images.pop("transformers_version", None)
    vocabulary = fingerprint(processor.tokenizer.get_vocab())
    return {"images": images, "template": processor.chat_template, "vocabulary": vocabulary}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server is asked for; only ``model``, ``max_tokens`` and ``image`` can change an answer."""

    model: str  # as the server calls it
    max_tokens: int = 32  # of an answer
    image: str = "png"  # png (the very pixels) or jpeg (quality 95, smaller)
    concurrency: int = 4  # requests at a time


class HttpVlm:
    """A ``VisionLanguageModel`` behind an address; ``concurrency`` threads may ask at once.

    No one but the server knows its weights, so the fingerprint can hold only the model's name and the options that
    change answers; not the address, so that a server may move. If a server's weights change under the same name,
    give it another with ``?name=``.
    """

    def __init__(self, name: str, settings: ServerSettings, server: RemoteServer) -> None:
        self.name = name
        self.concurrency = settings.concurrency
        answering = {"model": settings.model, "max_tokens": settings.max_tokens, "image": settings.image}
        self.fingerprint = fingerprint({"dialect": "chat completions", **answering})
        self._settings = settings
        self._server = server

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """Return one answer per question, several asked at a time; see ``VisionLanguageModel``."""
        if len(images) == 1:
            return [self._ask(images[0], questions[0])]
        with ThreadPoolExecutor(self.concurrency) as threads:
            return list(threads.map(self._ask, images, questions))

    def _ask(self, image: Image, question: str) -> str:
        return self._server.post(_answer, content=json.dumps(_request(self._settings, image, question)))


def load_http(name: Name, *, device: str) -> HttpVlm:
    """Load a model of a server.

    Options: ``max_tokens=32``, ``image=png|jpeg``, ``timeout=60`` (seconds), ``retries=4``, ``backoff=1`` (seconds),
    ``per_minute=0`` (no limit), ``concurrency=4``, ``key_env=HOLDFAST_API_KEY`` (the environment variable that holds
    the key, which is sent to this server only and never written anywhere).
    """
    del device  # the server's own business
    options = checked(name, {"max_tokens": int, "image": str, "concurrency": int, **SERVER_OPTIONS})
    hint = "run the same command again with --retry-errors"
    server, model = open_server(name, options, kind="vlm", endpoint="/chat/completions", hint=hint)
    settings = ServerSettings(model, **options)
    if settings.image not in ("png", "jpeg"):
        raise unknown("image format", settings.image, ("png", "jpeg"))
    check_limits(settings, "vlm+http", {"max_tokens": (1, 4096), "concurrency": (1, 256)})
    answering = {option: value for option, value in name.options.items() if option in ("max_tokens", "image")}
    shown = display_name(Name("vlm+http", model, options=answering), model)
    return HttpVlm(shown, settings, server)


def _request(settings: ServerSettings, image: Image, question: str) -> dict[str, Any]:
    options = [cv2.IMWRITE_JPEG_QUALITY, 95] if settings.image == "jpeg" else []
    fine, data = cv2.imencode(".jpg" if settings.image == "jpeg" else ".png", image[..., ::-1], options)
    if not fine:
        raise SampleError(f"the image cannot be written as {settings.image}")
    url = f"data:image/{settings.image};base64,{base64.b64encode(data.tobytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return {
        "model": settings.model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": settings.max_tokens,
        "stream": False,
    }


def _answer(response: Any) -> str:
    """Return the text of a response; anything else may be passing trouble of the server."""
    try:
        choice = response["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise TryAgainError("a response that is not a chat completion") from None
    if isinstance(content, list):  # some servers answer in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(refusal, str) and refusal:
        return Refusal(refusal)
    if choice.get("finish_reason") == "content_filter":
        return Refusal(content if isinstance(content, str) else "")
    if content is not None and not isinstance(content, str):
        raise TryAgainError("a response that is not a chat completion")
    return (content or "").strip()
