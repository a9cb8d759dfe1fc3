# The images of Beam: the workers, with Beam's harness, for Dataflow (sdk_container_image) and for pools beside Flink and
# Spark; and what hands jobs to Flink and Spark, which needs Java too.
#   pip wheel --no-deps --wheel-dir dist .
#   docker build -f infra/images/beam.Dockerfile --target worker -t REGISTRY/tokenfree-beam:0.3.0 .
#   docker build -f infra/images/beam.Dockerfile --target submit -t REGISTRY/tokenfree-beam-submit:0.3.0 .
# The digest of Beam's image is not known here: `docker buildx imagetools inspect apache/beam_python3.11_sdk:2.77.0` tells
# it; write it behind the tag as it stands behind that of Python.
FROM apache/beam_python3.11_sdk:2.77.0 AS harness

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS worker
COPY --from=harness /opt/apache/beam /opt/apache/beam
WORKDIR /opt/tokenfree
COPY infra/images/beam.lock dist/tokenfree-*.whl ./
# Preprocessing imports neither torch nor Ray; what is left out is several gigabytes.
RUN pip install --no-cache-dir --no-deps --require-hashes -r beam.lock \
    && pip install --no-cache-dir --no-deps tokenfree-*.whl \
    && python -c 'import tokenfree.pipelines.preprocess, apache_beam.io.gcp.gcsio' \
    && rm -r /opt/tokenfree/*
RUN useradd --create-home --uid 10001 tokenfree
# Nothing is installed when a worker starts, so it needs no environment of its own, nor a place to write one.
ENV OMP_NUM_THREADS=1 RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
LABEL org.opencontainers.image.title="tokenfree-beam" \
    org.opencontainers.image.description="Beam workers that turn text into shards for tokenfree" \
    org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can tell that it is not root.
USER 10001
WORKDIR /home/tokenfree
# As Dataflow starts it. As a pool beside an engine: python -m tokenfree.pipelines.worker_pool --port 50000
ENTRYPOINT ["/opt/apache/beam/boot"]

FROM worker AS submit
LABEL org.opencontainers.image.title="tokenfree-beam-submit" \
    org.opencontainers.image.description="tokenfree with Java, which submits Beam jobs to Flink and Spark"
USER 0
# Java's package wants a folder for its manual. Debian keeps no older versions, so that none can be asked for.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
USER 10001
ENTRYPOINT []
CMD ["tokenfree", "--help"]
