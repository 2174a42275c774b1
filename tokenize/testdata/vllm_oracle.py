"""Fills in what vLLM makes of the requests in a vectors file, with vLLM's own code.

    python vllm_oracle.py TOKENIZER_DIR < vllm-0.32.jsonl > new.jsonl

Run it where vLLM is installed (the CPU wheel will do; neither a GPU nor weights are needed). TOKENIZER_DIR is the
directory the file's README line names. Lines keep their request; text, ids and error are made anew.
"""
import json
import logging
import os
import sys
import types

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
logging.disable(logging.CRITICAL)

from transformers import AutoTokenizer
from vllm.entrypoints.generate.base.protocol import validate_request_mm_kwargs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.renderers import hf
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.inputs.preprocess import prompt_to_seq
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.params import merge_kwargs
from vllm.tokenizers.hf import get_cached_tokenizer

tokenizer = get_cached_tokenizer(AutoTokenizer.from_pretrained(sys.argv[1], truncation_side="left"))
model = types.SimpleNamespace(
    enable_prompt_embeds=False, multimodal_config=None, is_multimodal_model=False, max_model_len=100000,
    tokenizer="t", model="t", tokenizer_revision=None, revision=None, code_revision=None, trust_remote_code=False,
    hf_config=types.SimpleNamespace(model_type="qwen3"), allowed_local_media_path="", allowed_media_domains=None,
)


def chat(request, template, defaults, trust):
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    refused = OnlineRenderer.validate_chat_template(
        types.SimpleNamespace(create_error_response=lambda message: message),
        request.chat_template, request.chat_template_kwargs, trust)
    if refused:
        raise ValueError(refused)
    validate_request_mm_kwargs(
        mm_processor_kwargs=request.mm_processor_kwargs, media_io_kwargs=request.media_io_kwargs,
        trust_request_mm_kwargs=False)
    params = request.build_chat_params(template, "auto").with_defaults(
        merge_kwargs(defaults, {"tools": tools, "tokenize": False}))
    content_format = hf.resolve_chat_template_content_format(
        chat_template=params.chat_template, tools=params.chat_template_kwargs.get("tools"),
        given_format="auto", tokenizer=tokenizer, model_config=model)
    conversation, _, _ = parse_chat_messages(list(request.messages), model, content_format)
    text = hf.safe_apply_chat_template(model, tokenizer, conversation, **params.get_apply_chat_template_kwargs())
    if not isinstance(text, str):
        raise TypeError("ids instead of text")
    text.encode()
    return text


def ids_of(request, prompt):
    params = request.build_tok_params(model)
    if isinstance(prompt, str):
        text = params.apply_pre_tokenization(tokenizer, {"prompt": prompt})["prompt"]
        prompt = tokenizer(text, **params.get_encode_kwargs())["input_ids"]
    return params.apply_post_tokenization(tokenizer, {"prompt_token_ids": prompt})["prompt_token_ids"]


meta = {}
for line in sys.stdin:
    case = json.loads(line)
    if case.get("kind") == "meta":
        meta = case
        sys.stdout.write(line)
        continue
    out = {key: value for key, value in case.items() if key not in ("text", "ids", "error")}
    try:
        body = json.loads(case["body"])
        if case.get("kind") == "completion":
            request = CompletionRequest.model_validate(body)
            prompt = prompt_to_seq(request.prompt)[0]
            if isinstance(prompt, str):
                out["text"] = prompt
        else:
            request = ChatCompletionRequest.model_validate(body)
            template = case.get("template")
            prompt = out["text"] = chat(
                request, meta.get("templates", {}).get(template, template),
                json.loads(case.get("defaults", "{}")), case.get("trust", True))
        if "kind" in case:
            out["ids"] = ids_of(request, prompt)
    except Exception as error:  # whatever vLLM raises becomes a refusal
        out.pop("text", None)
        out["error"] = type(error).__name__
    print(json.dumps(out, separators=(",", ":")))
