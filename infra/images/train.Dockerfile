# The image of Ray's nodes, for machines without and with NVIDIA GPUs. NVIDIA's driver is the machine's; torch's own
# wheels hold the rest of CUDA. Beam is left out: --runner ray and --workers N preprocess without it.
#   pip wheel --no-deps --wheel-dir dist .
#   docker build -f infra/images/train.Dockerfile -t REGISTRY/tokenfree-train:0.3.0-cuda .
#   docker build -f infra/images/train.Dockerfile -t REGISTRY/tokenfree-train:0.3.0-cpu \
#     --build-arg TORCH_INDEX=ADDRESS .                          the index of CPU builds that pytorch.org names
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
# By which `ray up` brings files into the container, and its head reaches the workers. Debian keeps no older versions, so
# that none can be asked for.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client rsync \
    && rm -rf /var/lib/apt/lists/*
ARG TORCH_INDEX=""
WORKDIR /opt/tokenfree
COPY infra/images/train.lock dist/tokenfree-*.whl ./
RUN grep -o '^torch==[0-9.]*' train.lock > torch.txt \
    && pip install --no-cache-dir ${TORCH_INDEX:+--no-deps --index-url "$TORCH_INDEX"} -r torch.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r train.lock \
    && pip install --no-cache-dir --no-deps tokenfree-*.whl \
    && pip check \
    && tokenfree --version \
    && rm -r /opt/tokenfree/*
RUN useradd --create-home --uid 10001 tokenfree \
    && install --directory --owner tokenfree /cache
# hadolint takes our name for a secret one.
# hadolint ignore=DL3064
ENV PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 TOKENFREE_CACHE=/cache
LABEL org.opencontainers.image.title="tokenfree-train" \
    org.opencontainers.image.description="Ray nodes that pretrain token-free language encoders" \
    org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can tell that it is not root.
USER 10001
WORKDIR /home/tokenfree
CMD ["tokenfree", "doctor"]
