//! Configures a server.

use std::path::{Path, PathBuf};

/// The name of the socket file in the server's folder.
pub(super) const SOCKET: &str = "redis.sock";

/// The options of a server. All fields have a default: a plain server without memory, password or limits.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    pub persistence: Persistence,
    /// The password of the user `default` (`requirepass`).
    pub password: Option<String>,
    /// Users in the syntax of an ACL line, without the leading `user`: `app on >secret ~redlock:* +@all`.
    pub users: Vec<String>,
    pub tls: Option<TlsFiles>,
    /// `maxmemory`, as in `10mb`.
    pub max_memory: Option<String>,
    /// `maxmemory-policy`; Redis itself defaults to `noeviction`.
    pub eviction_policy: Option<String>,
    /// Whether `DEBUG` is allowed, with which a test makes a server sleep or reload.
    pub debug_command: bool,
    /// Further lines of the configuration file; they come last and take precedence.
    pub config: Vec<String>,
}

/// The data that a server has after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    #[default]
    None,
    /// An append-only file, synced before each answer.
    Aof,
}

/// The files of a server that speaks TLS only.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub ca: PathBuf,
    /// Whether a client must show a certificate of the same CA (`tls-auth-clients`).
    pub client_certificate_required: bool,
}

impl ServerOptions {
    pub(super) fn config(&self, folder: &Path, port: u16, version: (u32, u32)) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            format!("dir {}", quoted(&folder.join("data"))),
            format!("logfile {}", quoted(&folder.join("redis.log"))),
            format!("unixsocket {}", quoted(&folder.join(SOCKET))),
            "unixsocketperm 700".to_owned(),
        ];
        match &self.tls {
            None => lines.push(format!("port {port}")),
            Some(tls) => lines.extend([
                "port 0".to_owned(),
                format!("tls-port {port}"),
                format!("tls-cert-file {}", quoted(&tls.certificate)),
                format!("tls-key-file {}", quoted(&tls.key)),
                format!("tls-ca-cert-file {}", quoted(&tls.ca)),
                format!(
                    "tls-auth-clients {}",
                    if tls.client_certificate_required {
                        "yes"
                    } else {
                        "no"
                    }
                ),
            ]),
        }
        match self.persistence {
            Persistence::None => lines.push("appendonly no".to_owned()),
            Persistence::Aof => lines.extend([
                "appendonly yes".to_owned(),
                "appendfsync always".to_owned(),
                // A rewrite would fork in the middle of a measurement, and these files stay small.
                "auto-aof-rewrite-percentage 0".to_owned(),
            ]),
        }
        lines.extend(
            self.password
                .iter()
                .map(|password| format!("requirepass {}", quoted_text(password))),
        );
        lines.extend(self.users.iter().map(|user| format!("user {user}")));
        lines.extend(self.max_memory.iter().map(|bytes| format!("maxmemory {bytes}")));
        lines.extend(
            self.eviction_policy
                .iter()
                .map(|policy| format!("maxmemory-policy {policy}")),
        );
        // Before 7.0 every user may use DEBUG, and the directive is unknown.
        if self.debug_command && version >= (7, 0) {
            lines.push("enable-debug-command yes".to_owned());
        }
        lines.extend(self.config.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }
}

fn quoted(path: &Path) -> String {
    quoted_text(&path.to_string_lossy())
}

fn quoted_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &ServerOptions, version: (u32, u32)) -> String {
        options.config(Path::new("/folder"), 20_001, version)
    }

    #[test]
    fn a_server_listens_on_loopback_only() {
        let config = config(&ServerOptions::default(), (7, 0));
        assert!(config.starts_with("bind 127.0.0.1\n"), "{config}");
        assert!(config.contains("\nport 20001\n"), "{config}");
    }

    #[test]
    fn a_tls_server_has_no_plain_port() {
        let file = PathBuf::from("/f");
        let tls = TlsFiles {
            certificate: file.clone(),
            key: file.clone(),
            ca: file,
            client_certificate_required: true,
        };
        let config = config(
            &ServerOptions {
                tls: Some(tls),
                ..ServerOptions::default()
            },
            (7, 0),
        );
        assert!(config.contains("\nport 0\ntls-port 20001\n"), "{config}");
        assert!(config.contains("\ntls-auth-clients yes\n"), "{config}");
    }

    #[test]
    fn a_password_cannot_end_its_quotes() {
        let options = ServerOptions {
            password: Some(r#"a"b\c"#.to_owned()),
            ..ServerOptions::default()
        };
        let config = config(&options, (7, 0));
        assert!(config.contains(r#"requirepass "a\"b\\c""#), "{config}");
    }

    #[test]
    fn an_old_server_is_not_given_a_directive_it_does_not_know() {
        let options = ServerOptions {
            debug_command: true,
            ..ServerOptions::default()
        };
        assert!(config(&options, (7, 0)).contains("enable-debug-command yes"));
        assert!(!config(&options, (6, 2)).contains("enable-debug-command"));
    }

    #[test]
    fn lines_of_the_caller_come_last() {
        let options = ServerOptions {
            config: vec!["appendonly yes".to_owned()],
            ..ServerOptions::default()
        };
        assert!(config(&options, (7, 0)).ends_with("appendonly yes\n"));
    }
}
