//! The history of a mounted volume, which its server sends over the control socket.
//!
//! The first message describes the volume. Each of the following messages contains a file of the log, and the last one
//! contains none.

use std::time::{Duration, Instant};

use obento::Volume;
use obento::base::{Error, Ino};
use obento_fuse::MountPoint;
use obento_fuse::handover::{Connection, ConnectionError, Fields, Kind, Need, Parsed, StateError};

use crate::report::foreign;

const ROOT: u16 = 1;
const VOLUME_ID: u16 = 2;
const NAME: u16 = 3;
const CONTENTS: u16 = 4;

/// The maximum number of files that are received. A log consists of 16 segments, their indexes, a few other
/// files, and segments of an earlier log of another size. The server can belong to another user, and could
/// send without an end.
const FILES_MAX: usize = 1024;
/// The maximum size of all messages, in bytes.
const BYTES_MAX: usize = 1 << 30;
/// The longest time for all messages.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The log of a mounted volume at one moment.
pub struct History {
    /// The inode number of the root directory.
    pub root: Ino,
    /// The UUID or the serial number of the volume; empty if it has none.
    pub volume_id: String,
    /// The names and contents of the files of the log.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Sends the log of `volume`, which has this UUID or serial number, as it is now.
pub fn send(volume: &Volume, volume_id: &str, connection: &Connection) -> Result<(), ConnectionError> {
    let files = volume.recorded().ok_or(Error::NotSupported).and_then(|recorded| recorded.log_files());
    let files = match files {
        Ok(files) => files,
        Err(error) => return refuse(connection, error),
    };
    let about = Fields::default().with_number(ROOT, volume.root().ino().0);
    let about = about.with(VOLUME_ID, Need::Optional, volume_id.as_bytes());
    connection.send(Kind::Records, &about.into_bytes(), &[])?;
    for file in files {
        let (name, contents) = match file {
            Ok(file) => file,
            Err(error) => return refuse(connection, error),
        };
        let fields = Fields::default().with(NAME, Need::Critical, name.as_bytes());
        connection.send(
            Kind::Records,
            &fields.with(CONTENTS, Need::Critical, &contents).into_bytes(),
            &[],
        )?;
    }
    connection.send(Kind::Records, &[], &[])
}

fn refuse(connection: &Connection, error: Error) -> Result<(), ConnectionError> {
    match error {
        Error::NotSupported => connection.refuse("it does not record the history of the volume"),
        error => connection.refuse(&format!("the history cannot be read: {error}")),
    }
    Ok(())
}

/// Asks the server of `mount` for the log.
pub fn ask(mount: &MountPoint) -> Result<History, String> {
    let connection = Connection::to_server(mount).map_err(|error| error.to_string())?;
    // The server may belong to another user.
    let text = |error: &dyn std::fmt::Display| format!("its server: {}", foreign(&error.to_string()));
    connection.send(Kind::History, &[], &[]).map_err(|error| text(&error))?;
    receive(&connection).map_err(|error| text(&error))
}

/// Receives a log.
fn receive(connection: &Connection) -> Result<History, HistoryError> {
    let end = Instant::now() + TIME_MAX;
    let mut left = BYTES_MAX;
    let mut next = || {
        let message = connection.expect_before(Kind::Records, end, left)?;
        left = left.saturating_sub(message.fields.len());
        Ok::<_, HistoryError>(message.fields)
    };
    let mut history = about(&next()?)?;
    while let Some(file) = file(&next()?)? {
        history.files.push(file);
        if history.files.len() > FILES_MAX || Instant::now() >= end {
            return Err(HistoryError::Endless);
        }
    }
    Ok(history)
}

/// The reason why a log cannot be received.
#[derive(Debug, thiserror::Error)]
enum HistoryError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the history has more than {} files, or takes more than {} seconds", FILES_MAX, TIME_MAX.as_secs())]
    Endless,
}

fn about(bytes: &[u8]) -> Result<History, StateError> {
    let mut fields = Parsed::of(bytes)?;
    let (root, volume_id) = (Ino(fields.number(ROOT)?), fields.text(VOLUME_ID)?);
    fields.finish()?;
    Ok(History { root, volume_id, files: Vec::new() })
}

/// Decodes a file of the log; `None` at the end.
fn file(bytes: &[u8]) -> Result<Option<(String, Vec<u8>)>, StateError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut fields = Parsed::of(bytes)?;
    let (name, contents) = (fields.text(NAME)?, fields.bytes(CONTENTS)?.to_vec());
    fields.finish()?;
    Ok(Some((name, contents)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn a_history_without_an_end_is_an_error() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Connection::of_stream(one).unwrap(), Connection::of_stream(other).unwrap());
        let sender = thread::spawn(move || {
            let send = |fields: Fields| other.send(Kind::Records, &fields.into_bytes(), &[]);
            let about = Fields::default().with_number(ROOT, 1);
            send(about.with(VOLUME_ID, Need::Optional, b"id")).unwrap();
            let file =
                || Fields::default().with(NAME, Need::Critical, b"a").with(CONTENTS, Need::Critical, b"b");
            while send(file()).is_ok() {}
        });
        assert!(matches!(receive(&one), Err(HistoryError::Endless)));
        drop(one);
        sender.join().unwrap();
    }
}
