//! Where a page goes: files are written whole or not at all, and never over what was read; what is open already, as
//! the standard output is, gets it as it is.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::error::{Error, Result};

/// Whether both are one file, whatever their names are.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a path leads to what the standard output is: `/dev/stdout`, or the file it was redirected to.
pub fn is_stdout(path: &Path) -> bool {
    let opened = io::stdout().as_fd().try_clone_to_owned();
    let opened = opened.and_then(|it| File::from(it).metadata());
    matches!((fs::metadata(path), opened), (Ok(named), Ok(opened)) if is_same(&named, &opened))
}

/// Refuses to write a file that is the input. Terminals and pipes may be both: nothing in them is replaced.
pub fn check_apart(output: &Path, input: &Path) -> Result<()> {
    match (fs::metadata(output), fs::metadata(input)) {
        (Ok(to), Ok(from)) if to.is_file() && is_same(&to, &from) => Err(Error::OverInput {
            path: output.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Writes a file. A regular one is written through a temporary one beside it, so that nobody sees part of it,
/// and links to it stay; anything else (a pipe, a device) is written to as it is, and the standard output where it
/// stands: what a log holds already stays. A reader of a pipe that has seen enough and went away is no failure, as for
/// other results.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<()> {
    let written = match fs::metadata(path) {
        _ if is_stdout(path) => {
            let mut out = io::stdout().lock();
            unless_read_enough(out.write_all(contents).and_then(|()| out.flush()))
        }
        Ok(found) if found.is_file() => fs::canonicalize(path)
            .and_then(|target| replace(&target, contents, found.permissions())),
        // A link to nothing makes what it names.
        Ok(_) => unless_read_enough(write_to(path, contents)),
        Err(_) if path.is_symlink() => write_to(path, contents),
        // What the process's umask leaves of it.
        Err(_) => replace(path, contents, Permissions::from_mode(0o666)),
    };
    written.map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

fn unless_read_enough(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn write_to(path: &Path, contents: &[u8]) -> io::Result<()> {
    File::create(path)?.write_all(contents)
}

fn replace(path: &Path, contents: &[u8], mode: Permissions) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // An error names the directory then, not the file that takes the place of the other in the end.
    fs::metadata(directory)?;
    let mut file = tempfile::Builder::new()
        .permissions(mode)
        .tempfile_in(directory)?;
    file.write_all(contents)?;
    file.persist(path)?;
    Ok(())
}
