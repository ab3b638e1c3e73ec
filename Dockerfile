# The image of redlock: one static binary and the CA bundle. docs/image.md describes how to build it.
#
#     BUILD_BASE    Rust with rustup, a C compiler (ring has some C), and the CA bundle. For another architecture than its own it
#                   needs the C compiler of that one, such as Debian's gcc-aarch64-linux-gnu
#     FINAL_BASE    scratch, or a base with a shell for debugging
ARG BUILD_BASE=docker.io/library/rust:1.95-bookworm
ARG FINAL_BASE=scratch
# BuildKit lists the crates of Cargo.lock in the SBOM: a static binary names none.
ARG BUILDKIT_SBOM_SCAN_CONTEXT=true

FROM --platform=$BUILDPLATFORM ${BUILD_BASE} AS build
ARG TARGETARCH
WORKDIR /src

# musl: its resolver needs no library at run time, and its licence allows static linking under any licence. Rust ships
# the linker and musl, so no C toolchain for musl is needed.
RUN case $TARGETARCH in \
      amd64) cpu=x86_64 ;; \
      arm64) cpu=aarch64 ;; \
      *) echo "TARGETARCH=$TARGETARCH: amd64 or arm64" >&2; exit 1 ;; \
    esac; \
    target=$cpu-unknown-linux-musl; \
    variable=$(echo "$target" | tr a-z- A-Z_); \
    printf 'export %s\n' \
      "CARGO_BUILD_TARGET=$target" \
      "CARGO_TARGET_${variable}_LINKER=rust-lld" \
      "CC_$(echo "$target" | tr - _)=$cpu-linux-gnu-gcc" \
      "CFLAGS_$(echo "$target" | tr - _)=-U_FORTIFY_SOURCE" >/environment; \
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"

# The build of the dependencies stays cached while these files are unchanged: the sources are in a later layer.
COPY Cargo.toml Cargo.lock build.rs ./
COPY src/run/functions.ld src/run/
COPY tests/model/Cargo.toml tests/model/
COPY crates/redlock-core/Cargo.toml crates/redlock-core/
COPY crates/redlock-bench/Cargo.toml crates/redlock-bench/
COPY crates/redlock-client/Cargo.toml crates/redlock-client/
COPY crates/redlock-csi/Cargo.toml crates/redlock-csi/
COPY crates/redlock-demo/Cargo.toml crates/redlock-demo/
COPY crates/redlock-node/Cargo.toml crates/redlock-node/
COPY crates/redlock-testkit/Cargo.toml crates/redlock-testkit/
COPY crates/redlock-world/Cargo.toml crates/redlock-world/
RUN mkdir -p benches crates/redlock-bench/benches && touch src/lib.rs; \
    for package in tests/model crates/*; do mkdir $package/src && touch $package/src/lib.rs; done; \
    for program in src/main benches/run benches/kubernetes crates/redlock-bench/benches/lease; do echo 'fn main() {}' >$program.rs; done; \
    . /environment && cargo build --release --locked --bin redlock

# The sources may be older than the artifacts of their empty stand-ins, and cargo compares times of modification.
ARG REVISION=unknown
COPY src src
COPY crates crates
COPY examples/standalone examples/standalone
RUN touch src/lib.rs src/main.rs crates/*/src/lib.rs; \
    . /environment && REDLOCK_REVISION=$REVISION cargo build --release --locked --bin redlock && \
    install -D "target/$CARGO_BUILD_TARGET/release/redlock" /out/usr/local/bin/redlock && \
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt

FROM ${FINAL_BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title=redlock-operator \
      org.opencontainers.image.description="Elects one active replica for every declared lock, with Redlock leases on independent Redis masters" \
      org.opencontainers.image.source=https://github.com/redlock-operator/redlock-operator \
      org.opencontainers.image.documentation=https://github.com/redlock-operator/redlock-operator#readme \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
COPY --from=build /out/ /
ENV PATH=/usr/local/bin:/usr/bin:/bin
# Each thread of the runtime would have a heap of its own: with 10,000 locks, 26 MiB more.
ENV MALLOC_ARENA_MAX=2
# A numeric user: runAsNonRoot cannot verify a name.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/redlock"]
