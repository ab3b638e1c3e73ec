# Reads what `docker buildx imagetools inspect --format '{{ json .SBOM }}'` prints: the documents of an image, for one platform or by
# platform. Prints the one that lists the crates, or null.
[.. | objects | select(has("spdxVersion")) | select(any(.packages[]?; .name == "redlock-core"))][0]
