# Both programs for a plain CPU: stages weights (cloudrun/stage.yaml), decides batches (cloudrun/batch-job.yaml), and serves small
# checkpoints anywhere. Build it from the root of the repository: docker build -f cloudrun/cpu.Dockerfile .
# Base images by their tags, until `make cloudrun-pin` adds the digests.
ARG RUST_IMAGE=rust:1.95.0-slim-bookworm
ARG RUN_IMAGE=debian:12-slim
FROM $RUST_IMAGE AS chef
RUN cargo install cargo-chef --version 0.1.78 --locked
WORKDIR /src

FROM chef AS planner
COPY Cargo.toml Cargo.lock ./
COPY decision decision
COPY diffusion-gemma diffusion-gemma
COPY dgemma-server dgemma-server
COPY dgem dgem
RUN cargo chef prepare --recipe-path recipe.json

FROM chef AS builder
COPY --from=planner /src/recipe.json recipe.json
RUN cargo chef cook --release --locked --recipe-path recipe.json --package dgem --package dgemma-server
COPY Cargo.toml Cargo.lock ./
COPY decision decision
COPY diffusion-gemma diffusion-gemma
COPY dgemma-server dgemma-server
COPY dgem dgem
# Templates and benchmarks are part of dgem.
COPY templates templates
COPY benchmarks benchmarks
ARG GIT_REVISION
RUN DGEM_GIT_REVISION=$GIT_REVISION cargo build --release --locked --package dgem --package dgemma-server

FROM $RUN_IMAGE
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 10001 --no-create-home dgem
COPY --from=builder /src/target/release/dgem /src/target/release/dgemma-server /usr/local/bin/
COPY --chmod=755 cloudrun/entrypoint.sh /usr/local/bin/dgemma-entrypoint
COPY --chmod=755 cloudrun/batch-task.sh /usr/local/bin/dgem-batch-task
ARG GIT_REVISION
LABEL org.opencontainers.image.title=dgem \
  org.opencontainers.image.licenses=Apache-2.0 \
  org.opencontainers.image.revision=$GIT_REVISION
USER 10001
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["dgemma-entrypoint"]
