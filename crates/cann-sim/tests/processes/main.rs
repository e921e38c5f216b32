//! Memory and events shared between processes, with real processes: each test
//! starts two or more peers (this program again, see `peer.rs`) and tells them
//! what to call. Source of the rules: reference 11-04
//! (aclrtMemExportToShareableHandle and V2, aclrtMemSetPidToShareableHandle,
//! aclrtMemImportFromShareableHandle), 11-05 (aclrtIpcMem*), 12
//! (aclrtIpcGetEventHandle, aclrtIpcOpenEventHandle), and the function named.

mod events;
mod exit_report;
mod forks;
mod handles;
mod keys;
mod peer;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory in which the peers of one test meet.
struct Meeting {
    directory: PathBuf,
}

impl Meeting {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cann-sim-peers-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Meeting { directory }
    }

    /// A process on a simulator with these knobs.
    fn peer(&self, knobs: &[(&str, &str)]) -> Peer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut process = command
            .args(["--ignored", "--exact", "peer::peer", "--nocapture"])
            .env("CANN_SIM_IPC_DIR", &self.directory)
            .envs(knobs.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let orders = process.stdin.take().unwrap();
        let mut peer = Peer {
            process,
            orders: Some(orders),
            answers,
        };
        peer.answer();
        peer
    }

    /// Two processes with real memory.
    fn backed_pair(&self) -> (Peer, Peer) {
        let knobs = [("CANN_SIM_MODE", "backed"), ("CANN_SIM_CAPACITY", "1g")];
        (self.peer(&knobs), self.peer(&knobs))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A process that makes the calls it is told to make.
struct Peer {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn id(&self) -> u64 {
        u64::from(self.process.id())
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the peer has died");
            if let Some(answer) = line.strip_prefix("peer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Makes a call; its code and what it gave.
    fn ask(&mut self, order: &str) -> (i32, String) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let answer = self.answer();
        let (code, value) = answer.split_once(' ').unwrap_or((&answer, ""));
        (code.parse().unwrap(), value.to_owned())
    }

    /// Makes a call that must succeed; what it gave.
    fn get(&mut self, order: &str) -> String {
        let (code, value) = self.ask(order);
        assert_eq!(code, 0, "{order}");
        value
    }

    /// Makes a call that must fail; its code.
    fn refused(&mut self, order: &str) -> i32 {
        let (code, _) = self.ask(order);
        assert_ne!(code, 0, "{order} succeeds");
        code
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}
