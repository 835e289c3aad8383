# The operator's image: an isolated environment from the hashed lock in a slim Python, nothing to build with, no root.
# Pin the base for a release: --build-arg BASE=python:3.13-slim@sha256:<digest that you verified>
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python -m venv /build && /build/bin/pip install --require-hashes -r requirements/build.txt \
 && python -m venv /opt/berth && /opt/berth/bin/pip install --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/berth/bin/pip install --no-deps --no-index dist/*.whl \
 && /opt/berth/bin/pip uninstall --yes pip \
 && /usr/local/bin/python -m compileall -q -j 0 /opt/berth/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="berth" \
      org.opencontainers.image.description="Kubernetes operator that gives every AI workload the right berth" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/berth /opt/berth
ENV PATH=/opt/berth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "berth.main"]
