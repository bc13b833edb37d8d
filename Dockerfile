# Belljar in a container, with code in the WebAssembly sandbox. docs/operations.md describes its use:
#
#   docker build --tag belljar .
#   docker run --rm --interactive --no-healthcheck belljar stdio --toolset all
#   docker run --publish 127.0.0.1:3001:3001 --volume ./tokens:/run/secrets/tokens:ro \
#       belljar streamable-http --host 0.0.0.0 --auth-token-file /run/secrets/tokens

FROM rust:1.95.0-slim-bookworm AS build
# The image has this toolchain. rust-toolchain.toml would add components that only contributors need.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /source
COPY . .
# Downloads the crates of Cargo.lock. The cache is kept between builds, and is no part of the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --package belljar \
    && install target/release/belljar /usr/local/bin/belljar

FROM debian:bookworm-slim
# Certificates are needed to fetch packages and the keys of an OAuth issuer. Debian releases replace their versions, so
# that a pinned one could soon not be installed any more.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# A number, by which Kubernetes recognises that the user is not root.
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/belljar belljar \
    && install --directory --owner belljar --group belljar --mode 0700 \
        /var/cache/belljar /var/lib/belljar /var/log/belljar
COPY --from=build /usr/local/bin/belljar /usr/local/bin/belljar
USER 10001:10001
ENV BELLJAR_CACHE=/var/cache/belljar
# Downloads CPython (Pyodide's CDN, or else npm's package, verified by their hashes) and compiles it, at build time instead
# of at the first start.
RUN ["belljar", "warmup"]
# There is no VOLUME: each container would copy the cache into a volume of its own when it starts. Compose and Kubernetes
# mount volumes at /var/cache/belljar, for packages, at /var/lib/belljar, for sessions (BELLJAR_DATA_DIR), and at
# /var/log/belljar, for --audit.
EXPOSE 3001
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s CMD ["belljar", "healthcheck"]
ENTRYPOINT ["belljar"]
# Without a token or an OAuth issuer it ends with an error that names the options.
CMD ["streamable-http", "--host", "0.0.0.0"]
