//! The types that users write: `RedisQuorum` and `LeaderLock`.
