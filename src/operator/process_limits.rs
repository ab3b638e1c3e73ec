//! Sets the limits of a process that serves for long: open files, which the connections to masters share with those of HTTP
//! clients, and no core dumps, which would have passwords and tokens.

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, rlim_t, setrlimit},
};

use crate::http_server::ConnectionLimits;

/// The files of a process in addition to those of its HTTP clients: the connections to the masters of some quorums and to
/// the API server, and the runtimes.
const OTHER_FILES: rlim_t = 256;

/// The HTTP clients that a process serves at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpClients {
    /// The number of addresses.
    pub(crate) addresses: rlim_t,
    /// The largest number of long answers at once.
    pub(crate) long_answers: rlim_t,
}

impl HttpClients {
    /// Returns the limit of open files with which HTTP clients take no file from the masters.
    fn needed_files(self) -> rlim_t {
        let connections = rlim_t::try_from(ConnectionLimits::default().connections).unwrap_or(rlim_t::MAX);
        let of_addresses = self.addresses.saturating_mul(connections);
        OTHER_FILES
            .saturating_add(self.long_answers)
            .saturating_add(of_addresses)
    }
}

/// Raises the limit of open files to the hard limit, and warns if that is too low for these clients. Turns core dumps off.
pub(crate) fn set_process_limits(clients: HttpClients) {
    if let Err(cause) = forbid_core_dumps() {
        tracing::warn!(%cause, "core dumps could not be turned off: one would have the passwords of the masters");
    }
    let needed = clients.needed_files();
    match raised() {
        Ok(limit) if limit >= needed => tracing::debug!(limit, "the limit of open files is the hard limit"),
        Ok(limit) => tracing::warn!(
            limit,
            needed,
            "the limit of open files is low: HTTP clients may use up the files for connections to masters; raise the hard limit (RLIMIT_NOFILE)"
        ),
        Err(cause) => tracing::warn!(
            %cause,
            needed,
            "the limit of open files could not be raised; start the process with a higher one (RLIMIT_NOFILE)"
        ),
    }
}

/// Sets a limit of one byte, with which the kernel writes no file and starts no program that receives the dump. It starts one
/// with a limit of zero.
fn forbid_core_dumps() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, hard.min(1), hard.min(1))
}

fn raised() -> Result<rlim_t, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_and_each_long_answer_needs_files() {
        for (addresses, long_answers, needed) in [
            (1, 0, 320),
            (2, 0, 384),
            (1, 256, 576),
            (0, rlim_t::MAX, rlim_t::MAX),
        ] {
            let clients = HttpClients {
                addresses,
                long_answers,
            };
            assert_eq!(clients.needed_files(), needed);
        }
    }

    #[test]
    fn limit_of_open_files_is_the_hard_limit_and_there_are_no_core_dumps() {
        set_process_limits(HttpClients {
            addresses: 1,
            long_answers: 0,
        });
        assert!(getrlimit(Resource::RLIMIT_CORE).unwrap().1 <= 1);
        let limit = raised().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
