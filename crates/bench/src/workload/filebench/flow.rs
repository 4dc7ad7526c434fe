//! Three servers as lists of operations that threads repeat: `varmail.f`, `fileserver.f`, `webserver.f`.

use std::io;
use std::sync::Mutex;

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{Files, OpenFile, OpenMode, read_whole, write_span};
use crate::random::Rng;
use crate::workload::file_set::{FileSet, FileSetPlan, Sizes};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

/// The number of bytes of a call that reads or writes a whole file.
const IO_SIZE: usize = 1 << 20;
/// The upper limit of the size of an append. Sizes have a uniform distribution below it.
const APPEND: u64 = 16 << 10;
const LOG: &str = "weblog";

/// One operation of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Create,
    Open,
    Close,
    WriteWhole,
    ReadWhole,
    Append,
    AppendLog,
    Sync,
    Delete,
    Stat,
}

/// A server: a set of files, and threads that repeat a list of operations on it.
#[derive(Clone, Copy, Debug)]
pub struct Personality {
    plan: FileSetPlan,
    threads: usize,
    flows: &'static [Flow],
}

/// A mail server that syncs the mail it receives.
pub const VAR_MAIL: Personality = {
    use Flow::*;
    Personality {
        plan: FileSetPlan {
            name: "bigfileset",
            entries: 1000,
            width: 1_000_000,
            sizes: Sizes::Gamma(16 << 10),
            preallocated: 80,
        },
        threads: 16,
        flows: &[
            Delete, Create, Append, Sync, Close, Open, ReadWhole, Append, Sync, Close, Open, ReadWhole, Close,
        ],
    }
};

/// A server of home directories.
pub const FILE_SERVER: Personality = {
    use Flow::*;
    Personality {
        plan: FileSetPlan {
            name: "bigfileset",
            entries: 10_000,
            width: 20,
            sizes: Sizes::Gamma(128 << 10),
            preallocated: 80,
        },
        threads: 50,
        flows: &[Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close, Delete, Stat],
    }
};

/// A server of web pages that writes a log.
pub const WEB_SERVER: Personality = {
    use Flow::*;
    Personality {
        plan: FileSetPlan {
            name: "bigfileset",
            entries: 1000,
            width: 20,
            sizes: Sizes::Gamma(16 << 10),
            preallocated: 100,
        },
        threads: 100,
        flows: &[
            Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close,
            Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close,
            Open, ReadWhole, Close, Open, ReadWhole, Close, AppendLog,
        ],
    }
};

impl Personality {
    fn plan(&self, settings: &Settings) -> FileSetPlan {
        FileSetPlan { entries: settings.scaled(self.plan.entries).max(20), ..self.plan }
    }
}

impl Workload for Personality {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        if self.flows.contains(&Flow::AppendLog) {
            context.files.open(LOG, OpenMode::Create).during("create", LOG)?;
        }
        FileSet::plan(&self.plan(&context.settings), context).make(context)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let set = FileSet::plan(&self.plan(&context.settings), context);
        let log = Mutex::new(());
        let team = ThreadGroup::new("", Measure::Rate, self.threads).for_time(context.settings.run_time);
        let phase = team.run(context, |member| {
            let mut thread = Thread {
                files: &*context.files,
                set: &set,
                log: &log,
                open: None,
                data: vec![0x55; IO_SIZE],
                buf: vec![0; IO_SIZE],
            };
            while !member.is_over() {
                for flow in self.flows {
                    let bytes = thread.step(*flow, &mut member.rng)?;
                    member.count(1, bytes);
                }
            }
            thread.close();
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        let mean = match self.plan.sizes {
            Sizes::Fixed(size) | Sizes::Gamma(size) => size,
        };
        // The files grow during the run because of appends.
        self.plan(settings).entries * (mean + APPEND + 4096) * 2
    }
}

/// The state of a thread.
struct Thread<'s> {
    files: &'s dyn Files,
    set: &'s FileSet,
    /// Protects appends to the log, which must be at the end of the file.
    log: &'s Mutex<()>,
    open: Option<(usize, Box<dyn OpenFile>)>,
    data: Vec<u8>,
    buf: Vec<u8>,
}

impl Thread<'_> {
    /// Runs one operation. Returns the number of bytes read or written. If all files exist, none is created; if none
    /// exists, none is opened. The list continues in both cases, as in Filebench.
    fn step(&mut self, flow: Flow, rng: &mut Rng) -> io::Result<u64> {
        match flow {
            Flow::Create => {
                if let Some(number) = self.set.pick_missing() {
                    let file = self.files.open(&self.set.entry(number).path, OpenMode::Create)?;
                    self.set.made(number);
                    self.open = Some((number, file));
                }
            }
            Flow::Open => {
                if let Some(number) = self.set.pick_existing() {
                    self.open =
                        Some((number, self.files.open(&self.set.entry(number).path, OpenMode::Change)?));
                }
            }
            Flow::Close => self.close(),
            Flow::WriteWhole => return self.write_whole(),
            Flow::ReadWhole => {
                return self.open.as_ref().map_or(Ok(0), |(_, file)| read_whole(&**file, &mut self.buf));
            }
            Flow::Append => return self.append(rng),
            Flow::AppendLog => {
                let _alone = self.log.lock();
                let log = self.files.open(LOG, OpenMode::Change)?;
                return append(&*log, &self.data, rng);
            }
            Flow::Sync => self.open.as_ref().map_or(Ok(()), |(_, file)| file.sync())?,
            Flow::Delete => {
                if let Some(number) = self.set.pick_to_delete() {
                    self.files.remove_file(&self.set.entry(number).path)?;
                    self.set.deleted(number);
                }
            }
            Flow::Stat => {
                if let Some(number) = self.set.pick_existing() {
                    let size = self.files.stat(&self.set.entry(number).path);
                    self.set.done(number);
                    size?;
                }
            }
        }
        Ok(0)
    }

    fn write_whole(&self) -> io::Result<u64> {
        let Some((number, file)) = &self.open else { return Ok(0) };
        let size = self.set.entry(*number).size;
        write_span(&**file, 0, size, &self.data)?;
        Ok(size)
    }

    fn append(&self, rng: &mut Rng) -> io::Result<u64> {
        self.open.as_ref().map_or(Ok(0), |(_, file)| append(&**file, &self.data, rng))
    }

    fn close(&mut self) {
        if let Some((number, _)) = self.open.take() {
            self.set.done(number);
        }
    }
}

fn append(file: &dyn OpenFile, data: &[u8], rng: &mut Rng) -> io::Result<u64> {
    let len = rng.u64(0..APPEND);
    write_span(file, file.len()?, len, data)?;
    Ok(len)
}
