//! Reads the files of a supply, for a caller that writes their bytes itself.

use std::os::fd::OwnedFd;

use obento_base::wire::to_u64;
use rustix::io::Errno;

use super::supply::{OpenedSource, Supply};
use crate::HostError;

/// Opens files one after another.
pub struct Reader<'a> {
    supply: &'a Supply,
    dir: Option<(u32, OwnedFd)>,
}

/// An open file.
pub struct SuppliedFile<'a> {
    supply: &'a Supply,
    data: u32,
    opened: OpenedSource,
}

impl<'a> Reader<'a> {
    /// Creates a reader for `supply`.
    pub fn new(supply: &'a Supply) -> Self {
        Self { supply, dir: None }
    }

    /// Opens the file with this number, whose length was `size` bytes. Fails with `System` or `Changed`.
    pub fn open(&mut self, data: u32, size: u64) -> Result<SuppliedFile<'a>, HostError> {
        let opened = self.supply.open(data, &mut self.dir)?;
        let bytes = SuppliedFile { supply: self.supply, data, opened };
        if let OpenedSource::Whole(fd) = &bytes.opened {
            let stat = rustix::fs::fstat(fd);
            let stat = stat.map_err(|errno| HostError::system("examine", self.supply.path(data), errno))?;
            if stat.st_size.cast_unsigned() != size {
                return Err(bytes.changed());
            }
        }
        Ok(bytes)
    }
}

impl SuppliedFile<'_> {
    /// Fills `buf` with the bytes from `at` on. Fails with `System`, and with `Changed` if the file ends first.
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> Result<(), HostError> {
        let (fd, base) = self.opened.place();
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let from = base.saturating_add(at).saturating_add(to_u64(done));
            match rustix::io::pread(fd, rest, from) {
                Ok(0) => return Err(self.changed()),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(HostError::system("read", self.supply.path(self.data), errno)),
            }
        }
        Ok(())
    }

    fn changed(&self) -> HostError {
        HostError::Changed { path: self.supply.path(self.data) }
    }
}
