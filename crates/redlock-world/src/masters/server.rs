//! Serves the connections to a master.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    Master,
    database::Bytes,
    resp::{Reply, take_command},
};
use crate::network::{Connection, Listener};

/// Accepts connections until the process is killed.
pub(super) async fn serve(master: Master, mut listener: Listener, killed: CancellationToken) {
    loop {
        let (connection, _) = tokio::select! {
            biased;
            () = killed.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (session, killed) = (Session::new(master.clone()), killed.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = killed.cancelled() => {}
                () = session.run(connection) => {}
            }
        });
    }
}

/// One connection of a client.
struct Session {
    master: Master,
    number: u64,
    protocol: u8,
    authenticated: bool,
    pushes: mpsc::UnboundedSender<Reply>,
    pushed: mpsc::UnboundedReceiver<Reply>,
}

impl Session {
    fn new(master: Master) -> Self {
        let (pushes, pushed) = mpsc::unbounded_channel();
        let number = master.state().next_connection();
        Self {
            master,
            number,
            protocol: 2,
            authenticated: false,
            pushes,
            pushed,
        }
    }

    /// Runs until the client closes the connection, or does not follow the protocol.
    async fn run(mut self, mut connection: Connection) {
        let (mut buffer, mut out) = (Vec::new(), Vec::new());
        loop {
            tokio::select! {
                biased;
                read = connection.read_buf(&mut buffer) => {
                    if !matches!(read, Ok(1..)) {
                        return;
                    }
                    self.turn().await;
                    while let Ok(Some(command)) = take_command(&mut buffer) {
                        self.handle(&command, &mut out);
                    }
                }
                push = self.pushed.recv() => {
                    self.turn().await;
                    if let Some(push) = push {
                        push.write(self.protocol, &mut out);
                    }
                }
            }
            if connection.write_all(&out).await.is_err() {
                return;
            }
            out.clear();
        }
    }

    /// Waits until the server handles commands.
    async fn turn(&self) {
        let delay = self.master.state().delay;
        if !delay.is_zero() {
            time::sleep(delay).await;
        }
        let mut handles = self.master.0.handles.subscribe();
        // The master owns the sender.
        let _ = handles.wait_for(|handles| *handles).await;
    }

    fn handle(&mut self, command: &[Bytes], out: &mut Vec<u8>) {
        let reply = self.reply(command, out);
        // Pushes that the command caused come first.
        while let Ok(push) = self.pushed.try_recv() {
            push.write(self.protocol, out);
        }
        if let Some(reply) = reply {
            reply.write(self.protocol, out);
        }
    }

    /// Returns `None` if the replies were written.
    fn reply(&mut self, command: &[Bytes], out: &mut Vec<u8>) -> Option<Reply> {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let name = words
            .first()
            .map(|name| name.to_ascii_uppercase())
            .unwrap_or_default();
        match &*name {
            b"HELLO" => return Some(self.hello(&words[1..])),
            b"AUTH" => return Some(self.authenticate(words.last().copied().unwrap_or_default())),
            _ => {}
        }
        if !self.authenticated && self.master.state().password.is_some() {
            return Some(Reply::error("NOAUTH Authentication required."));
        }
        match &*name {
            b"SELECT" | b"CLIENT" => Some(Reply::ok()),
            b"SUBSCRIBE" | b"UNSUBSCRIBE" => {
                let verb = String::from_utf8_lossy(&name).to_lowercase();
                for (index, channel) in words[1..].iter().enumerate() {
                    self.subscribe(&verb, channel, index + 1)
                        .write(self.protocol, out);
                }
                None
            }
            _ => Some(self.master.state().execute(command)),
        }
    }

    fn subscribe(&self, verb: &str, channel: &[u8], count: usize) -> Reply {
        let mut state = self.master.state();
        if verb == "subscribe" {
            let pushes = self.pushes.clone();
            state.database.subscribe(channel, self.number, pushes);
        } else {
            state.database.unsubscribe(channel, self.number);
        }
        let count = Reply::Integer(i64::try_from(count).unwrap());
        Reply::Push(vec![Reply::text(verb), Reply::Bulk(channel.to_vec()), count])
    }

    /// Handles `HELLO [protocol [AUTH user password] [SETNAME name]]`.
    fn hello(&mut self, words: &[&[u8]]) -> Reply {
        if let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case(b"AUTH")) {
            let refused = self.authenticate(words.get(at + 2).copied().unwrap_or_default());
            if matches!(refused, Reply::Error(_)) {
                return refused;
            }
        } else if self.master.state().password.is_some() && !self.authenticated {
            return Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            );
        }
        match words.first().copied() {
            Some(b"3") => self.protocol = 3,
            Some(b"2") => self.protocol = 2,
            None => {}
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
        }
        let pairs = [
            ("server", Reply::text("redis")),
            ("version", Reply::text("7.2.4")),
            ("proto", Reply::Integer(i64::from(self.protocol))),
            ("id", Reply::Integer(i64::try_from(self.number).unwrap())),
            ("mode", Reply::text("standalone")),
            ("role", Reply::text("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        let pairs = pairs.into_iter();
        Reply::Map(
            pairs
                .flat_map(|(name, value)| [Reply::text(name), value])
                .collect(),
        )
    }

    fn authenticate(&mut self, password: &[u8]) -> Reply {
        let expected = self.master.state().password.clone();
        match expected {
            Some(expected) if expected.as_bytes() != password => {
                Reply::error("WRONGPASS invalid username-password pair or user is disabled.")
            }
            _ => {
                self.authenticated = true;
                Reply::ok()
            }
        }
    }
}
