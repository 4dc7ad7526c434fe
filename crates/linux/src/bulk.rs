//! Many files in one request.

use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::{Bulk, NEW_FILE_MAX, NewFile};
use obento_linux_wire::{Answer, DATA_MAX, Moment, NewFile as Sent, Request, Times};

use crate::volume::{State, Volume, nonsense};

/// The most files of a request: their names fit it, however long they are.
const FILES: usize = 512;

impl Bulk for Volume {
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>> {
        let mut state = self.state();
        let (mut done, mut rest) = (Vec::with_capacity(files.len()), files);
        while let Some((first, _)) = rest.split_first() {
            if first.bytes.len() > NEW_FILE_MAX {
                done.push(Err(Error::Invalid));
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let (portion, later) = rest.split_at(portion(rest));
            match self.make_files(&mut state, dir, portion) {
                Ok(errnos) => done.extend(errnos),
                Err(error) => done.extend(portion.iter().map(|_| Err(error))),
            }
            rest = later;
        }
        done
    }
}

/// How many of the first of `files` one request takes.
fn portion(files: &[NewFile<'_>]) -> usize {
    let mut room = DATA_MAX;
    let fits = |file: &&NewFile<'_>| {
        let left = room.checked_sub(file.bytes.len()).filter(|_| file.bytes.len() <= NEW_FILE_MAX);
        left.inspect(|&left| room = left).is_some()
    };
    files.iter().take(FILES).take_while(fits).count()
}

impl Volume {
    fn make_files(&self, state: &mut State, dir: Ino, files: &[NewFile<'_>]) -> Result<Vec<Result<()>>> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.directory(state, dir)?;
        let bytes: Vec<_> = files.iter().map(|file| file.bytes).collect();
        let request = Request::MakeFiles { dir: dir.0, files: files.iter().map(sent).collect() };
        let answer = self.ask_with(state, &[dir], request, &bytes.concat());
        state.changed(dir);
        match answer? {
            Answer::Made { errnos } if errnos.len() == files.len() => Ok(errnos
                .into_iter()
                .map(
                    |errno| {
                        if errno == 0 { Ok(()) } else { Err(crate::engine::Trouble::Errno(errno).into()) }
                    },
                )
                .collect()),
            _ => Err(nonsense()),
        }
    }
}

fn sent(file: &NewFile<'_>) -> Sent {
    let moment = |at: Option<Timestamp>| at.map(|at| Moment { seconds: at.secs(), nanos: at.nanos() });
    Sent {
        name: file.name.as_bytes().to_vec(),
        mode: file.node.mode.bits(),
        uid: file.node.uid,
        gid: file.node.gid,
        times: Times { atime: moment(file.atime), mtime: moment(file.mtime) },
        len: u32::try_from(file.bytes.len()).unwrap_or(u32::MAX),
    }
}
