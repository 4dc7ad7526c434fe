//! `obento part`: shows and changes a partition table.

mod create;
mod list;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::Image;
use obento::address::{Address, AddressError, HostEntry, Operand, PartSelector, snapshot_of};
use obento::driver::Access;
use obento::env::{Random as _, SystemRandom};
use obento::image::ImageNotice;
use obento::partition::{
    DiskId, EditError, Guid, NewEntry, Partition, PartitionType, Placement, Scheme, Table, TableEditor,
};

use self::create::Create;
use crate::cause::Cause;
use crate::context::Context;
use crate::format::size::exact_size;
use crate::help::page::Page;
use crate::open;
use crate::output::{Outcome, Output};
use crate::parse::attributes;
use crate::parse::size::{positive_size, size};
use crate::parse::uuid::uuid;
use crate::report::{Report, printable, shell_word, subject};

/// Programs of others that change partitions.
const PART: &[&str] = &["sfdisk(8)", "sgdisk(8)"];

/// The page of `part`.
pub const PAGE: Page = Page::new(&[
    ("obento part disk.img", "List the partitions and the free space of a disk"),
    ("obento part disk.img create gpt --size 1G", "Create a disk of 1 GiB with an empty table"),
    ("obento part disk.img add --size 512M --type esp --name ESP", "Add a partition"),
    ("obento part disk.img grow 2", "Grow a partition up to the next one or the end of the disk"),
    ("obento part disk.img delete 3", "Delete a partition"),
    ("obento part disk.img attributes 1 +legacy-bootable", "Set an attribute"),
    ("obento part disk.img repair-backup", "Write both copies of a GPT again"),
])
.see_also(&["sfdisk(8)", "sgdisk(8)", "growpart(1)"])
.subcommands(&[
    (
        "list",
        Page::new(&[("obento part disk.img list", "List the partitions and the free space")]).see_also(PART),
    ),
    (
        "create",
        Page::new(&[
            ("obento part stick.img create mbr --size 8G", "Create a disk of 8 GiB with an empty MBR"),
            ("obento part disk.img create mbr --force", "Replace a partition table by an empty MBR"),
        ])
        .see_also(PART),
    ),
    (
        "add",
        Page::new(&[
            ("obento part disk.img add --size 512M --type esp --name ESP", "Add an EFI system partition"),
            (
                "obento part stick.img add --type basic-data",
                "Add a partition for Windows; 'obento mkfs -t vfat stick.img@1' then formats it",
            ),
        ])
        .see_also(PART),
    ),
    ("delete", Page::new(&[("obento part disk.img delete 3", "Delete partition 3")]).see_also(PART)),
    (
        "grow",
        Page::new(&[("obento part disk.img grow 2", "Grow a partition as far as possible")]).see_also(PART),
    ),
    ("type", Page::new(&[("obento part disk.img type 1 esp", "Set the type by its name")]).see_also(PART)),
    (
        "name",
        Page::new(&[("obento part disk.img name 2 root", "Set the name of a partition")]).see_also(PART),
    ),
    ("uuid", Page::new(&[("obento part disk.img uuid 2 random", "Set a random UUID")]).see_also(PART)),
    (
        "attributes",
        Page::new(&[("obento part disk.img attributes 1 +legacy-bootable", "Set an attribute")])
            .see_also(PART),
    ),
    (
        "repair-backup",
        Page::new(&[(
            "obento part disk.img repair-backup",
            "Write the backup GPT to the end of a larger disk",
        )])
        .see_also(PART),
    ),
]);

/// Show and change a partition table
///
/// Without a command, the partitions are listed. GPT and MBR are supported. The contents of partitions are never changed. If a
/// partition grows, the size of its file system does not change. A power failure leaves the old or the new table.
#[derive(clap::Args, Debug)]
#[command(subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
pub struct Args {
    /// The disk
    #[arg(value_name = "DISK")]
    disk: OsString,
    #[command(subcommand)]
    action: Option<Action>,
}

/// What to do with the table.
#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List the partitions and the free space
    List,
    Create(Create),
    Add(Box<Add>),
    /// Delete partitions from the table
    ///
    /// In an MBR, the numbers of the logical partitions after a deleted one change.
    Delete {
        /// The partitions: numbers, names or UUIDs
        #[arg(required = true, value_name = "PART")]
        parts: Vec<String>,
    },
    /// Grow a partition
    ///
    /// The size of the file system in the partition does not change.
    Grow {
        /// The partition: a number, name or UUID
        part: String,
        /// The new size, or +SIZE to add. The default is all space up to the next partition
        size: Option<String>,
    },
    /// Set the type of a partition
    Type {
        /// The partition: a number, name or UUID
        part: String,
        /// A name such as esp or linux-generic, a GUID, a code of sgdisk such as 8300, or the number of an MBR type such as 0x83
        #[arg(value_name = "TYPE")]
        kind: String,
    },
    /// Set the name of a partition of a GPT
    Name {
        /// The partition: a number, name or UUID
        part: String,
        /// The name, of at most 36 UTF-16 units
        name: String,
    },
    /// Set the UUID of a partition of a GPT, or of the disk
    Uuid {
        /// The partition, or 'disk'
        part: String,
        /// The UUID, random or clear (zeros); for the disk of an MBR, 8 hexadecimal digits
        uuid: String,
    },
    /// Set or clear attributes of a partition
    ///
    /// The attributes are required, no-block-io, legacy-bootable (or active),
    /// grow-file-system, read-only, no-auto and bit-N; an MBR has only active. NAME without a sign sets the attribute.
    Attributes {
        /// The partition: a number, name or UUID
        part: String,
        /// +NAME sets an attribute and -NAME clears it
        #[arg(required = true, value_name = "+NAME|-NAME", allow_hyphen_values = true)]
        changes: Vec<String>,
    },
    /// Write both copies of a GPT again, the second at the end of the disk, and restore a lost protective MBR
    RepairBackup,
}

/// Add a partition
///
/// The partition is placed at the start of the first gap that is large enough. Without --size, it fills the largest gap.
#[derive(clap::Args, Debug)]
struct Add {
    /// The size of the partition; the default is the rest of the gap
    #[arg(short, long, value_name = "SIZE", value_parser = positive_size)]
    size: Option<u64>,
    /// The first byte of the partition, such as 1M; by default, the start of a gap
    #[arg(long, value_name = "OFFSET", value_parser = size)]
    start: Option<u64>,
    /// The type of the partition: a name such as esp, linux-generic or basic-data (Windows), a GUID, a code of sgdisk such as 8300, the number of an MBR type, or extended; 'obento help layout' lists the names
    #[arg(long = "type", value_name = "TYPE", default_value = "linux-generic")]
    kind: String,
    /// The name of the partition, for a GPT
    #[arg(long, default_value = "")]
    name: String,
    /// The UUID of the partition, random or clear (zeros), for a GPT
    #[arg(long, default_value = "random")]
    uuid: String,
    /// The number of the partition; in an MBR, numbers above 4 are logical partitions
    #[arg(long, value_name = "N")]
    number: Option<u32>,
    /// The attributes of the partition, as for 'obento part DISK attributes'
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    attributes: Vec<String>,
}

/// The type of an extended partition with LBA addressing.
const EXTENDED: u8 = 0x0f;

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let access = match args.action {
        None | Some(Action::List) => Access::ReadOnly,
        Some(_) => Access::ReadWrite,
    };
    let disk = Disk { shown: args.disk.as_bytes(), context };
    if let Some(Action::Create(create)) = &args.action
        && let Ok(Operand::Host(path)) = open::operand(&args.disk, context)
        && !names_part(&args.disk, context)
    {
        match create.size {
            Some(size) => {
                context.expect_changes_allowed(disk.shown)?;
                return create::create_disk(&disk, &path, size, create);
            }
            None if context.look_up(&path) == HostEntry::Missing => {
                let report = Report::on("cannot open", disk.shown, "no such file");
                return Err(report.help("use --size SIZE to create a disk of this size").into());
            }
            None => {}
        }
    }
    let image = open(args, access, context)?;
    if let Some(Action::Create(create)) = &args.action {
        return create::create(&disk, &image, create);
    }
    let other = match image.table() {
        None if image.notices().contains(&ImageNotice::IgnoredGpt) => {
            Some(unprotected(&disk, &image, args.action.as_ref())?)
        }
        None => Table::read_empty_mbr(&**image.device()).ok().flatten(),
        Some(_) => None,
    };
    let Some(table) = image.table().or(other.as_ref()) else {
        return Err(without_table(&disk, &image).into());
    };
    let refused = |error| disk.refused(error);
    let Some(action) = args.action.as_ref().filter(|action| !matches!(action, Action::List)) else {
        return list::list(&disk, &image, table);
    };
    let mut editor = TableEditor::open(image.device().clone(), table).map_err(refused)?;
    let len_of = |editor: &TableEditor, number| editor.partition(number).ok().map(|partition| partition.len);
    let before = match action {
        Action::Grow { part, .. } => len_of(&editor, disk.find(&editor, part)?),
        _ => None,
    };
    let shown = disk.change(&mut editor, action)?;
    editor.write().map_err(|error| disk.refused(error))?;
    if editor.is_hybrid() && !matches!(action, Action::RepairBackup) {
        context.note(disk.shown, "the MBR beside the GPT has partitions of its own, which were not changed");
    }
    let mut out = Output::stdout();
    if let Some(number) = shown {
        let partition = editor.partition(number).map_err(|error| disk.refused(error))?;
        match context.json() {
            true => list::line(&disk, editor.table().scheme, partition).write(&mut out)?,
            false if before == Some(partition.len) => {
                let (size, why) = (exact_size(partition.len), obstacle(editor.table(), partition));
                writeln!(out, "{}: partition {number} already has {size}{why}", printable(disk.shown))?;
            }
            false => writeln!(out, "{}", list::sentence(&disk, partition))?,
        }
    }
    out.finish()
}

/// The usual alignment of partitions, which leaves smaller gaps between partitions.
const ALIGNMENT: u64 = 1 << 20;

/// Returns the words for what follows `partition` directly, so that it cannot grow.
fn obstacle(table: &Table, partition: &Partition) -> String {
    let mut others = table.partitions.iter().filter(|other| other.start >= partition.end());
    match others.find(|other| other.start.saturating_sub(partition.end()) < ALIGNMENT) {
        Some(next) => format!("; partition {} follows it", next.number),
        None => String::new(),
    }
}

/// Returns whether `disk` names a partition or a snapshot of an existing image, also if the partition is misspelt. It is
/// then not the name of a new disk.
fn names_part(disk: &OsStr, context: &Context) -> bool {
    let look_up = |path: &Path| context.look_up(path);
    match Address::parse_with(disk, &look_up) {
        Ok(address) => address.part.is_some() || snapshot_of(&address.image, &look_up).is_some(),
        Err(error) => matches!(error, AddressError::Part { .. }),
    }
}

/// Returns the GPT that is ignored because its protective MBR is missing, to write both again.
///
/// # Errors
///
/// The action is not that of writing the table again. Any other change would affect a table that the kernel ignores.
fn unprotected(disk: &Disk<'_>, image: &Image, action: Option<&Action>) -> Result<Table, Report> {
    let failed = |cause: &dyn Cause| Report::on("cannot use", disk.shown, cause);
    let has_volume = image.volume_bytes(None).is_ok_and(|(_, content)| content.probe().is_some());
    let table = match has_volume {
        // The file system is newer than the GPT.
        true => None,
        false => Table::read_unprotected_gpt(&**image.device()).map_err(|error| failed(&error))?,
    };
    match (table, action) {
        (Some(table), Some(Action::RepairBackup)) => Ok(table),
        (None, _) => {
            let cause = "the disk has a GPT, but the start of the disk has other contents";
            Err(failed(&cause).help("name a disk with partitions"))
        }
        (Some(table), _) => {
            let is_intact = table.notices.is_empty();
            let gpt = if is_intact { "the GPT is intact, but" } else { "the disk has a GPT, but" };
            let shown = shell_word(disk.shown);
            Err(failed(&format!("{gpt} its protective MBR is missing"))
                .help(format!("run 'obento part {shown} repair-backup' to write the MBR again")))
        }
    }
}

/// Returns the report of an image without a partition table. An image with other contents is not a disk to partition.
fn without_table(disk: &Disk<'_>, image: &Image) -> Report {
    let shown = shell_word(disk.shown);
    match create::contents(image) {
        None => Report::on("cannot use", disk.shown, "no partition table was found")
            .help(format!("run 'obento part {shown} create gpt' to create one")),
        Some(what) => {
            let cause = format!("no partition table was found: the image contains {what}");
            Report::on("cannot use", disk.shown, cause).help("name a disk with partitions")
        }
    }
}

/// Opens the disk and gives up the rights to open another file.
fn open(args: &Args, access: Access, context: &Context) -> Result<Image, Report> {
    let shown = args.disk.as_bytes();
    let address = open::image_address(&args.disk, context)?;
    if address.place.is_some() || address.part.is_some() {
        let report = Report::on("cannot use", shown, "not a whole disk");
        return Err(report.help("name the disk; the partition follows the command: part DISK grow 2"));
    }
    if access == Access::ReadWrite {
        context.expect_changes_allowed(shown)?;
    }
    let options = obento::Options { access, ..context.options().image_options() };
    let image = open::open_sealed_quietly(&address.image, &options, context)?;
    match args.action {
        // The notes need no hint: this command repairs the table.
        Some(Action::RepairBackup) => {
            image.notices().iter().for_each(|notice| context.note(shown, notice));
        }
        _ => open::report_notices(shown, &image, context.messages()),
    }
    Ok(image)
}

/// The codes of sgdisk(8) for types, and the names of the types.
const SGDISK_CODES: [(&str, &str); 5] = [
    ("0700", "basic-data"),
    ("8200", "swap"),
    ("8300", "linux-generic"),
    ("ea00", "xbootldr"),
    ("ef00", "esp"),
];

/// The disk in messages.
struct Disk<'a> {
    shown: &'a [u8],
    context: &'a Context,
}

impl Disk<'_> {
    /// Changes the table. Returns the number of a partition to print.
    fn change(&self, editor: &mut TableEditor, action: &Action) -> Result<Option<u32>, Report> {
        let refused = |error| self.refused(error);
        let scheme = editor.table().scheme;
        match action {
            // `run` handles these.
            Action::List | Action::Create(_) => {}
            Action::Add(add) => return self.add(editor, add).map(Some),
            Action::Delete { parts } => {
                let numbers = parts.iter().map(|part| self.find(editor, part));
                let mut numbers = numbers.collect::<Result<Vec<u32>, _>>()?;
                // From the last one on, because the numbers of later logical partitions change; an extended
                // partition comes after its contents.
                numbers.sort_by_key(|number| std::cmp::Reverse(*number));
                numbers.dedup();
                numbers.into_iter().try_for_each(|number| editor.delete(number)).map_err(refused)?;
            }
            Action::Grow { part, size } => {
                let number = self.find(editor, part)?;
                let partition = editor.partition(number).map_err(refused)?.clone();
                let end = self.grown(editor, &partition, size.as_deref())?;
                editor.set_range(number, partition.start..end).map_err(refused)?;
                return Ok(Some(number));
            }
            Action::Type { part, kind } => {
                let number = self.find(editor, part)?;
                editor.set_kind(number, self.kind(scheme, kind)?).map_err(refused)?;
            }
            Action::Name { part, name } => {
                let number = self.find(editor, part)?;
                if scheme == Scheme::Mbr {
                    let place = shell_word([self.shown, format!("@{number}").as_bytes()].concat());
                    let command = format!("obento tune {place} -L {}", shell_word(name));
                    return Err(self
                        .refused(EditError::NotInMbr { what: "name" })
                        .help(format!("set the label of its file system instead: {command}")));
                }
                editor.set_name(number, name).map_err(refused)?;
            }
            Action::Uuid { part, uuid } if part == "disk" => {
                editor.set_id(self.disk_id(scheme, uuid)?).map_err(refused)?;
            }
            Action::Uuid { part, uuid } => {
                let number = self.find(editor, part)?;
                if scheme == Scheme::Mbr {
                    let command = format!("obento part {} uuid disk random", shell_word(self.shown));
                    return Err(self
                        .refused(EditError::NotInMbr { what: "UUID" })
                        .help(format!("only the disk has a number: {command}")));
                }
                editor.set_uuid(number, guid(uuid)?).map_err(refused)?;
            }
            Action::Attributes { part, changes } => {
                let number = self.find(editor, part)?;
                let mut bits = editor.partition(number).map_err(refused)?.attributes;
                for change in changes {
                    let (name, is_set) = match change.strip_prefix('-') {
                        Some(name) => (name, false),
                        None => (change.strip_prefix('+').unwrap_or(change), true),
                    };
                    let bit = 1 << self.attribute(scheme, name)?;
                    bits = if is_set { bits | bit } else { bits & !bit };
                }
                editor.set_attributes(number, bits).map_err(refused)?;
            }
            Action::RepairBackup if scheme == Scheme::Mbr => {
                return Err(Report::on("cannot repair the backup of", self.shown, "an MBR has no backup"));
            }
            Action::RepairBackup => {}
        }
        Ok(None)
    }

    fn add(&self, editor: &mut TableEditor, add: &Add) -> Result<u32, Report> {
        let scheme = editor.table().scheme;
        let kind = match (scheme, &*add.kind) {
            (Scheme::Mbr, "extended") => PartitionType::Mbr(EXTENDED),
            (_, text) => self.kind(scheme, text)?,
        };
        let mut bits = 0;
        for name in &add.attributes {
            bits |= 1 << self.attribute(scheme, name)?;
        }
        if scheme == Scheme::Mbr && add.uuid != "random" {
            return Err(self.refused(EditError::NotInMbr { what: "UUID" }));
        }
        let new = NewEntry {
            number: add.number,
            placement: Placement { start: add.start, len: add.size },
            kind,
            name: add.name.clone(),
            uuid: guid(&add.uuid)?,
            attributes: bits,
        };
        editor.add(&new).map_err(|error| self.refused(error))
    }

    /// Returns the new end of a partition. Fails if the size is not valid or smaller than the present one.
    fn grown(&self, editor: &TableEditor, partition: &Partition, size: Option<&str>) -> Result<u64, Report> {
        let limit = editor.limit_of(partition.number).map_err(|error| self.refused(error))?;
        let Some(text) = size.filter(|text| *text != "max") else { return Ok(limit) };
        let (digits, base) = match text.strip_prefix('+') {
            Some(more) => (more, partition.len),
            None => (text, 0),
        };
        let parsed = positive_size(digits)
            .map_err(|why| Report::plain(format!("invalid size {}: {why}", subject(text))))?;
        let unit = u64::from(editor.table().sector_size);
        let len = base.checked_add(parsed).and_then(|len| len.checked_next_multiple_of(unit));
        let end = len.and_then(|len| partition.start.checked_add(len)).unwrap_or(u64::MAX);
        if end > limit {
            let most = limit.saturating_sub(partition.start);
            let next = editor.table().partitions.iter().filter(|other| other.start >= partition.end());
            let next =
                next.min_by_key(|other| other.start).filter(|other| other.start.abs_diff(limit) < unit);
            let next = next.map_or_else(String::new, |next| format!("; partition {} follows", next.number));
            let why = format!("partition {} can have at most {most} bytes{next}", partition.number);
            return Err(Report::on("cannot grow", self.shown, why)
                .help("omit the size to use all free space after the partition"));
        }
        if end < partition.end() {
            let why = format!(
                "partition {} has {} bytes, which is more than the new size",
                partition.number, partition.len
            );
            return Err(Report::on("cannot grow", self.shown, why)
                .help("name a larger size; 'obento part' never shrinks a partition"));
        }
        Ok(end)
    }

    /// Returns the number of the partition that `part` names.
    fn find(&self, editor: &TableEditor, part: &str) -> Result<u32, Report> {
        let selector = PartSelector::parse(part.as_bytes())?;
        let is_it = |partition: &&Partition| match &selector {
            PartSelector::Number(number) => partition.number == *number,
            PartSelector::Name(name) => partition.name == *name,
            PartSelector::Uuid(uuid) => partition.uuid == *uuid,
            PartSelector::Any(any) => {
                partition.name == *any || partition.uuid.as_bytes() == any.to_ascii_lowercase()
            }
            PartSelector::Offset(offset) => partition.start == *offset,
            PartSelector::Label(_) => false,
        };
        let mut found = editor.table().partitions.iter().filter(is_it);
        let wrong = |why: String| {
            Report::on("cannot change", self.shown, why)
                .help(format!("run 'obento part {}' to list the partitions", shell_word(self.shown)))
        };
        match (found.next(), found.next()) {
            (Some(found), None) => Ok(found.number),
            (None, _) => Err(wrong(format!("no partition has the number, name or UUID {}", subject(part)))),
            (Some(first), Some(second)) => {
                let (first, second) = (first.number, second.number);
                Err(wrong(format!("{} names partitions {first} and {second}", subject(part))))
            }
        }
    }

    fn kind(&self, scheme: Scheme, text: &str) -> Result<PartitionType, Report> {
        let code = text.to_ascii_lowercase();
        let code = SGDISK_CODES.iter().find(|(known, _)| scheme == Scheme::Gpt && *known == code);
        PartitionType::parse(code.map_or(text, |(_, name)| *name), scheme).ok_or_else(|| {
            Report::plain(format!("unknown type {} for {scheme}", subject(text))).help(match scheme {
                Scheme::Gpt => {
                    "use a name such as linux-generic, esp, swap or basic-data, or a GUID; 'obento help layout' lists the names"
                }
                Scheme::Mbr => {
                    "use a number such as 0x83, or esp, xbootldr, linux-generic, basic-data, swap, raid, lvm or extended"
                }
            })
        })
    }

    fn attribute(&self, scheme: Scheme, name: &str) -> Result<u32, Report> {
        attributes::bit(name, scheme).ok_or_else(|| {
            Report::plain(format!("unknown attribute {} for {scheme}", subject(name)))
                .help(attributes::known(scheme))
        })
    }

    fn disk_id(&self, scheme: Scheme, text: &str) -> Result<DiskId, Report> {
        match (scheme, text) {
            (Scheme::Gpt, text) => guid(text).map(DiskId::Guid),
            (Scheme::Mbr, "random") => {
                let mut number = [0; 4];
                SystemRandom.fill(&mut number);
                // 0 means that the disk has no number.
                Ok(DiskId::Signature(u32::from_le_bytes(number).max(1)))
            }
            (Scheme::Mbr, text) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                u32::from_str_radix(digits, 16).map(DiskId::Signature).map_err(|_| {
                    Report::plain(format!("invalid disk number {}", subject(text)))
                        .help("write 8 hexadecimal digits, such as 0x1234abcd")
                })
            }
        }
    }

    /// Returns the report of a refused change, with what to do.
    fn refused(&self, error: EditError) -> Report {
        let report = Report::on("cannot change the partition table of", self.shown, error);
        match error {
            EditError::OutOfRange { start, first, .. } if start < first => {
                report.help("omit --start to use free space, or name a start such as 1M")
            }
            EditError::PastEnd { needed, .. } => report.help(format!(
                "make the disk at least {needed} bytes long; for a raw image: truncate -s {needed} {}",
                shell_word(self.shown)
            )),
            EditError::NoSpace { .. } | EditError::Overlaps { .. } | EditError::OutOfRange { .. } => {
                report.help(format!("run 'obento part {}' to list the free space", shell_word(self.shown)))
            }
            EditError::BadNumber { scheme: Scheme::Gpt, .. } => report.help("use a number from 1 to 128"),
            EditError::BadNumber { scheme: Scheme::Mbr, .. } => {
                report.help("use a number from 1 to 4, or add an extended partition first: --type extended")
            }
            EditError::NotNext { next, .. } => {
                report.help(format!("omit --number, or use a number from 1 to 4, or {next}"))
            }
            EditError::Unaligned { .. } => report.help("use a start and a size such as 1M"),
            EditError::LongName { .. } => report.help("use a shorter name"),
            EditError::NotInMbr { what } => report.help(format!("omit the {what}, which only a GPT stores")),
            EditError::NumberInUse { .. } => report.help("omit --number to use the first free number"),
            EditError::ContainerInUse { .. } => report.help("change or delete the logical partitions first"),
            EditError::DamagedChain | EditError::Damaged => {
                report.help("a program such as testdisk can search for the lost partitions")
            }
            _ => report,
        }
    }
}

fn guid(text: &str) -> Result<Guid, Report> {
    let bytes = uuid(text)?.unwrap_or_else(|| SystemRandom.uuid());
    Ok(Guid::from_u128(u128::from_be_bytes(bytes)))
}
