# attnd in a container: built in one stage, run in another with the shared libraries only.
# Runs as uid 10001, needs no writable file system, stops by SIGTERM (it drains first).
#   docker build -t attnd .
#   docker run --rm -p 127.0.0.1:8080:8080 -v /path/to/model.gguf:/models/model.gguf:ro -v /path/to/keys:/run/secrets/attnd-keys:ro \
#     -e ATTND_API_KEY_FILE=/run/secrets/attnd-keys --read-only attnd
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      build-essential cmake ninja-build pkg-config libmicrohttpd-dev libjansson-dev libuv1-dev libopenblas-dev libpcre2-dev \
    && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt /src/
COPY include /src/include
COPY core /src/core
COPY server /src/server
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTND_TESTS=OFF && cmake --build /build --target attnd

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends \
      libmicrohttpd12 libjansson4 libuv1 libopenblas0-pthread libpcre2-8-0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin attnd
COPY --from=build /build/attnd /usr/local/bin/attnd
COPY deploy/healthcheck.sh /usr/local/bin/attnd-healthcheck
USER 10001:10001
ENV ATTND_HOST=0.0.0.0 ATTND_PORT=8080 ATTND_MODEL=/models/model.gguf
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/bin/bash", "/usr/local/bin/attnd-healthcheck"]
ENTRYPOINT ["/usr/local/bin/attnd"]
