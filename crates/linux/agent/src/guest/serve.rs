//! Serves each request with one answer.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use obento_linux_wire::{Answer, Envelope, MOUNTING, Request, Stat, decode, encode};
use rustix::fs::{StatVfsMountFlags, statvfs, syncfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::area::Area;
use super::attributes::{self, Change};
use super::errno::{Errno, last_error, number};
use super::ring::Ring;
use super::table::{Names, Table, Use};
use super::{change, data, grow, list, places, proofs};

/// The mount point of the volume.
const VOLUME: &CStr = c"/volume";
/// The disk.
const DISK: &CStr = c"/dev/vda";

/// `FITRIM` and its argument: include/uapi/linux/fs.h `_IOWR('X', 121, struct fstrim_range)`.
const FITRIM: libc::c_ulong = 0xc018_5879;

/// Types that are unmounted when their changes end, instead of becoming read-only. HFS and HFS+ are marked as clean
/// only on an unmount. GFS2 crashes Linux 6.1.176 when it becomes read-only (`gfs2_reconfigure` of fs/gfs2/ops_fstype.c
/// takes a lock that belongs to the process that mounted the volume). Source: Linux, `hfs_mdb_close` of fs/hfs/mdb.c,
/// `hfsplus_put_super` of fs/hfsplus/super.c.
const ENDED_BY_UNMOUNTING: [&CStr; 3] = [c"hfs", c"hfsplus", c"gfs2"];

/// Types that reserve space for a file while it is open: the preallocated blocks of AFFS (fs/affs/file.c), the reservation of
/// GFS2 (fs/gfs2/rgrp.c). For other types no request is repeated: HPFS becomes read-only at the second request without space.
const SETS_ASIDE: [&CStr; 2] = [c"affs", c"gfs2"];

/// The levels of printed kernel messages: always errors, and during a mount also warnings, which contain the reason of a
/// failure. Warnings of a volume in use would fill the console. Source: Linux, Documentation/admin-guide/sysctl/kernel.rst,
/// `printk`.
const ERRORS: &str = "4";
const WARNINGS: &str = "5";

/// The time limit for a volume to become read-only after all its files were released.
const SETTLING: Duration = Duration::from_secs(10);

#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    min_len: u64,
}

/// The guest, once it can serve requests.
pub struct Guest {
    area: Area,
    table: Table,
    ring: Ring,
    root: u64,
    /// Type and options of the volume.
    mounted: (CString, CString),
    /// The facts that verify files of the volume, since the last request for them.
    facts: Option<proofs::VolumeFacts>,
}

impl Guest {
    /// Creates the guest without a mounted volume.
    pub fn new(area: Area) -> Self {
        let (table, ring) = (Table::default(), Ring::new());
        Self { area, table, ring, root: 0, mounted: Default::default(), facts: None }
    }

    /// Serves requests until the serial line is closed, which ends the power.
    pub fn serve(mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> io::Result<()> {
        let message = self.area.request()?;
        let answer = match decode::<Envelope>(&message) {
            Some(envelope) => self.answer(&envelope),
            None => Err(libc::EBADMSG.unsigned_abs()),
        };
        let answer = answer.unwrap_or_else(|errno| Answer::Failed { errno });
        self.area.reply(&encode(&answer))
    }

    fn answer(&mut self, envelope: &Envelope) -> Result<Answer, Errno> {
        envelope.forget.iter().for_each(|&ino| self.table.forget(ino));
        envelope.steps.iter().try_for_each(|step| self.table.follow(step))?;
        match &envelope.request {
            Some(request) => self.act(request),
            None => Ok(Answer::Done {}),
        }
    }

    /// Executes a request; repeats it if it found no space and open files may have reserved some.
    fn act(&mut self, request: &Request) -> Result<Answer, Errno> {
        let done = self.try_to(request);
        if done != Err(libc::ENOSPC.unsigned_abs()) || !self.sets_aside() {
            return done;
        }
        self.ring.close_files();
        self.table.close_files();
        self.try_to(request)
    }

    fn sets_aside(&self) -> bool {
        SETS_ASIDE.contains(&&*self.mounted.0)
    }

    fn try_to(&mut self, request: &Request) -> Result<Answer, Errno> {
        let sets_aside = self.sets_aside();
        let table = &mut self.table;
        match request {
            Request::Mount { kind, options, read_only } => self.mount(kind, options, *read_only),
            Request::List { dir, from } => list::list(table, &mut self.ring, *dir, *from),
            Request::Look { dir, name } => Ok(Answer::Node { stat: table.look(*dir, name)? }),
            Request::Stat { ino } => Ok(Answer::Node { stat: table.stat(*ino)? }),
            Request::ReadLink { ino } => read_link(table, *ino),
            Request::Read { pieces } => Ok(data::read(table, &mut self.ring, pieces, self.area.data())),
            Request::Map { ino, offset, end, places: false } => data::map(table, *ino, *offset, *end),
            Request::Map { ino, offset, end, places: true } => places::map(table, *ino, *offset, *end),
            Request::Prove { ino, offset, end } => proofs::prove(table, &mut self.facts, *ino, *offset..*end),
            Request::StatFs {} => Ok(Answer::Usage { usage: attributes::usage(table, self.root)? }),
            Request::GetXattr { ino, name } => attributes::get_xattr(table, *ino, name),
            Request::ListXattrs { ino } => attributes::list_xattrs(table, *ino),
            Request::SetXattr { ino, name, value, flags } => {
                attributes::set_xattr(table, *ino, name, value, *flags)
            }
            Request::RemoveXattr { ino, name } => attributes::remove_xattr(table, *ino, name),
            Request::Make { dir, name, node } => change::make(table, *dir, name, node),
            Request::MakeFiles { dir, files } => {
                let bytes = self.area.data();
                let files = change::NewFiles { dir: *dir, files, bytes, sets_aside };
                change::make_files(table, &mut self.ring, &files)
            }
            Request::Link { ino, dir, name } => change::link(table, *ino, *dir, name),
            Request::Unlink { dir, name, is_dir } => change::unlink(table, *dir, name, *is_dir),
            Request::Rename { from, name, to, new_name, flags } => {
                change::rename(table, (*from, name), (*to, new_name), *flags)
            }
            Request::SetAttr { ino, mode, uid, gid, times, flags } => {
                let (mode, uid, gid, flags) = (*mode, *uid, *gid, *flags);
                attributes::set(table, *ino, &Change { mode, uid, gid, times: times.clone(), flags })
            }
            Request::Truncate { ino, size } => data::truncate(table, *ino, *size),
            Request::Write { ino, offset, len } => {
                let bytes = self.area.data().get(..usize::try_from(*len).unwrap_or(usize::MAX));
                data::write(table, *ino, *offset, bytes.ok_or(libc::EINVAL.unsigned_abs())?)
            }
            Request::Reserve { ino, offset, len, space } => data::reserve(table, *ino, *offset, *len, space),
            Request::Move { ino, offset, len, shift } => data::shift(table, *ino, *offset, *len, shift),
            Request::Sync {} => self.sync(),
            Request::Seal {} => self.seal(),
            Request::Trim { min_len } => self.trim(*min_len),
            Request::Grow { len } => grow::grow(&self.mounted.0, table.open(self.root, Use::Read)?, *len),
        }
    }

    fn mount(&mut self, kind: &[u8], options: &[u8], read_only: bool) -> Result<Answer, Errno> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| libc::EINVAL.unsigned_abs());
        self.mounted = (text(kind)?, text(options)?);
        print_up_to(WARNINGS);
        // In order with the messages of the kernel, unlike the tty. Without it, no reason is reported.
        let _ = fs::write("/dev/kmsg", format!("<3>{MOUNTING}"));
        let root = self.start(if read_only { MountFlags::RDONLY } else { MountFlags::empty() });
        print_up_to(ERRORS);
        let root = root?;
        let usage = attributes::usage(&mut self.table, self.root)?;
        let file_size_max = attributes::file_size_max(&mut self.table, self.root)?;
        Ok(Answer::Mounted { root, usage, file_size_max })
    }

    /// Mounts the volume, and returns its root.
    fn start(&mut self, flags: MountFlags) -> Result<Stat, Errno> {
        let (kind, options) = &self.mounted;
        let flags = flags | MountFlags::NOATIME | MountFlags::NODIRATIME;
        mount(DISK, VOLUME, &**kind, flags, &**options).map_err(number)?;
        // An HFS volume that was not unmounted becomes read-only by itself.
        let is_read_only = statvfs(VOLUME).map_err(number)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        if is_read_only && !flags.contains(MountFlags::RDONLY) {
            unmount(VOLUME, UnmountFlags::empty()).map_err(number)?;
            return Err(libc::EROFS.unsigned_abs());
        }
        let root = self.table.start(VOLUME, Names::of(kind))?;
        self.root = root.ino;
        Ok(root)
    }

    fn sync(&mut self) -> Result<Answer, Errno> {
        syncfs(self.table.open(self.root, Use::Read)?).map_err(number)?;
        Ok(Answer::Done {})
    }

    fn seal(&mut self) -> Result<Answer, Errno> {
        self.sync()?;
        self.facts = None;
        self.ring.let_go();
        if ENDED_BY_UNMOUNTING.contains(&&*self.mounted.0) {
            self.table = Table::default();
            patiently(|| unmount(VOLUME, UnmountFlags::empty()))?;
            self.start(MountFlags::RDONLY)?;
            return Ok(Answer::Done {});
        }
        self.table.let_go();
        let flags = MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODIRATIME;
        patiently(|| {
            mount_remount(VOLUME, flags, c"").inspect_err(|_| {
                // Unwritten data may keep the volume busy.
                let _ = self.sync();
            })
        })?;
        Ok(Answer::Done {})
    }

    fn trim(&mut self, min_len: u64) -> Result<Answer, Errno> {
        use std::os::fd::AsRawFd;
        let root = self.table.open(self.root, Use::Read)?;
        let mut range = TrimRange { start: 0, len: u64::MAX, min_len };
        // SAFETY: the request uses a structure with this layout and writes the discarded length into it.
        match unsafe { libc::ioctl(root.as_raw_fd(), FITRIM, &raw mut range) } {
            0 => Ok(Answer::Count { count: range.len }),
            _ => Err(last_error()),
        }
    }
}

/// Lets the kernel print messages below this level.
fn print_up_to(level: &str) {
    // Without it, less is reported.
    let _ = fs::write("/proc/sys/kernel/printk", level);
}

/// Executes `what` on the volume once it is not busy.
fn patiently(mut what: impl FnMut() -> rustix::io::Result<()>) -> Result<(), Errno> {
    let end = Instant::now() + SETTLING;
    let mut pause = Duration::from_millis(1);
    loop {
        match what() {
            // A kernel thread still holds an inode without a name, for example for the lazy commits of JFS.
            Err(rustix::io::Errno::BUSY) if Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(SETTLING / 500);
            }
            done => return done.map_err(number),
        }
    }
}

fn read_link(table: &Table, ino: u64) -> Result<Answer, Errno> {
    let target = rustix::fs::readlinkat(table.place(ino)?, c"", Vec::new()).map_err(number)?;
    Ok(Answer::Bytes { bytes: target.into_bytes() })
}
