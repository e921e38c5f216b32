//! What processes tell each other about shared memory: small files in a
//! directory of the user's own under `/dev/shm` (or `CANN_SIM_IPC_DIR`).

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A piece of memory that was exported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shared {
    /// Process that exported it.
    pub pid: u32,
    /// Device it lies on.
    pub device: u32,
    /// Bytes.
    pub len: u64,
    /// `aclrtMemAttr` of a physical handle.
    pub attr: u32,
    /// File with the pages, when memory is backed.
    pub path: Option<String>,
    /// Where in the file.
    pub offset: u64,
    /// Processes that may import it; all if none are named.
    pub allowed: Option<Vec<i32>>,
}

fn directory() -> io::Result<PathBuf> {
    let path = match env::var_os("CANN_SIM_IPC_DIR") {
        Some(path) => PathBuf::from(path),
        // SAFETY: has no precondition.
        None => PathBuf::from(format!("/dev/shm/cann-sim-{}", unsafe { libc::geteuid() })),
    };
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn file(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(io::Error::other("not a name of shared memory"));
    }
    Ok(directory()?.join(name))
}

/// A number no other export of any process has.
pub fn fresh_number() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Name of an exported physical handle.
pub fn handle_name(number: u64) -> String {
    format!("h{number:016x}")
}

/// Publishes a piece of memory under a name.
pub fn publish(name: &str, shared: &impl Serialize) -> io::Result<()> {
    let path = file(name)?;
    let temporary = path.with_extension(std::process::id().to_string());
    fs::write(&temporary, serde_json::to_vec(shared)?)?;
    fs::rename(temporary, path)
}

/// What was published under a name.
pub fn look_up<T: for<'a> Deserialize<'a>>(name: &str) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(file(name)?)?)?)
}

/// Withdraws the name of a piece of memory. A child of `fork` leaves those of its
/// parent.
pub fn withdraw(name: &str) {
    let own = |shared: Shared| shared.pid == std::process::id();
    if look_up(name).is_ok_and(own)
        && let Ok(path) = file(name)
    {
        let _ = fs::remove_file(path);
    }
}
