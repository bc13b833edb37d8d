# Runs Belljar's server in a container: docker run -p 3001:3001 -v $PWD/tokens:/tokens belljar --auth-token-file /tokens
FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p belljar

FROM debian:bookworm-slim
# Needed to fetch packages and the keys of an OAuth issuer.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home belljar
COPY --from=build /source/target/release/belljar /usr/local/bin/belljar
USER belljar
# Fetches and compiles CPython at build time instead of at the first start.
RUN belljar warmup
EXPOSE 3001
ENTRYPOINT ["belljar", "streamable-http", "--host", "0.0.0.0"]
