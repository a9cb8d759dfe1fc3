# A flex template of Dataflow: this image starts the job, so that nobody who starts it needs Python. It is the image of
# the workers with Google's launcher. The digest of Google's image is not known here: write what
# `docker buildx imagetools inspect` tells behind its tag.
#   docker build --build-arg WORKER=REGISTRY/tokenfree-beam:0.3.0 -f infra/images/dataflow-template.Dockerfile \
#     -t REGISTRY/tokenfree-dataflow-template:0.3.0 .
#   gcloud dataflow flex-template build gs://BUCKET/tokenfree.json --image REGISTRY/tokenfree-dataflow-template:0.3.0 \
#     --sdk-language PYTHON --metadata-file infra/beam/dataflow-template/metadata.json
ARG WORKER
FROM gcr.io/dataflow-templates-base/python311-template-launcher-base:20240812-rc01 AS launcher
# hadolint ignore=DL3006
FROM ${WORKER}
LABEL org.opencontainers.image.title="tokenfree-dataflow-template" \
    org.opencontainers.image.description="Flex template of Dataflow that starts jobs of tokenfree"
COPY --from=launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher
COPY infra/beam/dataflow-template/launch.py /opt/launch.py
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/launch.py
ENTRYPOINT ["/opt/google/dataflow/python_template_launcher"]
