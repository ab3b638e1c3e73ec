use super::*;

const REDIS: &str =
    "# Server\r\nredis_version:8.2.3\r\nredis_mode:standalone\r\nos:Linux 6.18 x86_64\r\nrun_id:9e\r\n";
const VALKEY: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n\
    valkey_release_stage:ga\r\nserver_mode:standalone\r\nrun_id:d9\r\nrole:master\r\n";
const KEYDB: &str = "# Server\r\nredis_version:6.3.4\r\nredis_mode:standalone\r\nrun_id:1a\r\n\
    # KeyDB\r\nmvcc_depth:0\r\nrole:master\r\n";
const DRAGONFLY: &str =
    "# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\nredis_mode:standalone\r\n";

fn version(of: &str) -> String {
    of.to_owned()
}

#[test]
fn each_program_is_known_by_its_own_fields_and_version() {
    let cases = [
        (REDIS, Server::Redis(version("8.2.3")), "Redis 8.2.3"),
        (VALKEY, Server::Valkey(version("9.1.2")), "Valkey 9.1.2"),
        (
            KEYDB,
            Server::KeyDb {
                version: version("6.3.4"),
                active_replica: false,
            },
            "KeyDB 6.3.4",
        ),
        (
            DRAGONFLY,
            Server::Dragonfly(version("df-v1.40.1")),
            "Dragonfly df-v1.40.1",
        ),
        (
            "# Server\r\ngarnet_version:1.1.9\r\nredis_version:7.4.3\r\nredis_mode:standalone\r\n",
            Server::Garnet(version("1.1.9")),
            "Garnet 1.1.9",
        ),
        (
            "# Server\r\nupstash_version:1.10.5\r\nredis_version:6.2.6\r\n",
            Server::Upstash(version("1.10.5")),
            "Upstash 1.10.5",
        ),
        (
            "# Server\r\nredis_version:7.1.0\r\nredis_mode:cluster\r\nos:Amazon MemoryDB\r\n",
            Server::MemoryDb(version("7.1.0")),
            "Amazon MemoryDB 7.1.0",
        ),
        (
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n",
            Server::Sentinel(version("7.0.15")),
            "Sentinel 7.0.15",
        ),
        (
            "# Server\r\nkvrocks_version:2.9.0\r\nredis_version:4.0.0\r\n",
            other("Kvrocks", version("4.0.0")),
            "Kvrocks (compatible with Redis 4.0.0)",
        ),
        (
            "# Server\r\nserver_name:newdb\r\nredis_version:7.2.4\r\n",
            other("newdb", version("7.2.4")),
            "newdb (compatible with Redis 7.2.4)",
        ),
        ("# Server\r\nrun_id:9e\r\n", Server::Unknown, "unknown server"),
        ("", Server::Unknown, "unknown server"),
    ];
    for (info, expected, shown) in cases {
        assert_eq!(identify(info), expected, "{info}");
        assert_eq!(expected.to_string(), shown);
    }
}

/// `version` matches neither `redis_version` nor `valkey_version`.
#[test]
fn field_is_a_whole_line() {
    assert_eq!(field(VALKEY, "version"), None);
    assert_eq!(
        field("my_redis_version:1\r\nredis_version:2", "redis_version"),
        Some("2")
    );
    assert_eq!(field("redis_version:\r\n", "redis_version"), Some(""));
}

#[test]
fn unsupported_programs_are_refused_by_name_with_reason_and_remedy() {
    let refused = |info: &str| refusal(&identify(info)).unwrap().to_string();
    let active = KEYDB.replace("role:master", "role:active-replica");
    for (info, parts) in [
        (
            DRAGONFLY,
            [
                "Dragonfly df-v1.40.1 cannot be a master",
                "no run_id",
                "use Redis 6.2",
            ],
        ),
        (
            "garnet_version:1.1.9",
            ["Garnet 1.1.9 cannot be", "no", "use Redis 6.2, Valkey 7.2"],
        ),
        (
            "upstash_version:1.10.5",
            ["Upstash 1.10.5 cannot", "the same url", "use Redis"],
        ),
        (
            "os:Amazon MemoryDB\r\nredis_version:7.1.0",
            [
                "Amazon MemoryDB 7.1.0",
                "cluster mode only",
                "without cluster mode",
            ],
        ),
        (
            "redis_version:7.0.15\r\nredis_mode:sentinel",
            ["Sentinel 7.0.15", "no keys", "the url of a server"],
        ),
        (
            &active,
            [
                "KeyDB 6.3.4 with active replicas cannot",
                "two candidates",
                "set active-replica no",
            ],
        ),
    ] {
        let text = refused(info);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn supported_and_unknown_programs_are_judged_by_their_version() {
    let verdict = |info: &str| refusal(&identify(info));
    for fit in [
        REDIS,
        VALKEY,
        KEYDB,
        "redis_version:6.2.0",
        "redis_version:255.255.255",
        "server_name:newdb\r\nredis_version:7.2.4",
    ] {
        assert_eq!(verdict(fit), None, "{fit}");
    }
    for (old, text) in [
        (
            "redis_version:6.0.16",
            "Redis 6.0.16 is too old; Redis 6.2, Valkey 7.2 or newer is needed",
        ),
        (
            "kvrocks_version:2.9.0\r\nredis_version:4.0.0",
            "Kvrocks (compatible with Redis 4.0.0) is too old",
        ),
        ("redis_version:6.0.18\r\nmvcc_depth:0", "KeyDB 6.0.18 is too old"),
    ] {
        let refusal = verdict(old).unwrap();
        assert!(matches!(refusal, Refusal::TooOld(_)), "{refusal:?}");
        assert!(refusal.to_string().starts_with(text), "{refusal}");
    }
    for (info, found) in [
        ("redis_version:seven", "seven"),
        ("", ""),
        ("redis_version:7", "7"),
    ] {
        assert_eq!(verdict(info), Some(Refusal::NoVersion(found.into())));
    }
}

#[test]
fn mode_is_read_by_both_names() {
    for (info, cluster) in [
        ("redis_mode:cluster", true),
        ("server_mode:cluster", true),
        (REDIS, false),
        (VALKEY, false),
        ("", false),
    ] {
        assert_eq!(in_cluster_mode(info), cluster, "{info}");
    }
}
