//! Finds the structure at a byte of an image.
//!
//! The driver returns the structure of its volume ([`Inspect::locate`]), and then its
//! fields. If the byte belongs to a file, the tree is searched for that file. The search first checks the data of
//! regular files, then the structures of every inode.

use std::collections::HashSet;
use std::fmt;

use obento_base::FileKind;
use obento_driver::{ByteUse, Field, Inspect, Record, Span, Target};
use obento_open::address::PartSelector;
use obento_open::image::PartitionContents;
use obento_open::text::escaped;
use obento_open::walk::{Entry, Step, Walk};
use obento_open::{Image, Volume};

/// The structure at a byte of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BytePlace {
    /// The partition that contains the byte.
    pub partition: Option<u32>,
    /// A description of the structure: `super block`, `inode 12`, `block 3 of the file '/etc/passwd'`.
    pub structure: String,
    /// The field of the structure.
    pub field: Option<Field>,
}

impl fmt::Display for BytePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.partition {
            write!(f, "partition {number}, ")?;
        }
        f.write_str(&self.structure)?;
        match &self.field {
            Some(field) => write!(f, ", {}", field.name),
            None => Ok(()),
        }
    }
}

/// Returns the structure at byte `offset` of the device inside all layers of `image`.
pub fn place_of(image: &Image, offset: u64) -> BytePlace {
    let bare = |structure: String| BytePlace { partition: None, structure, field: None };
    let inside = image.partitions().iter().filter(|partition| !partition.kind.is_container());
    let Some(partition) = inside.into_iter().find(|partition| partition.range().contains(&offset)) else {
        let field = image.table().and_then(|table| table.field_at(&**image.device(), offset));
        return match (field, image.table()) {
            (Some(field), _) => bare(field),
            (None, Some(_)) => bare("unused space between partitions".into()),
            (None, None) => in_volume(image, None, offset),
        };
    };
    let part = PartSelector::Number(partition.number);
    let place = in_volume(image, Some(&part), offset.saturating_sub(partition.start));
    BytePlace { partition: Some(partition.number), ..place }
}

fn in_volume(image: &Image, part: Option<&PartSelector>, offset: u64) -> BytePlace {
    let bare = |structure: String| BytePlace { partition: None, structure, field: None };
    let Ok(volume) = image.volume_to_read(part) else {
        let held = image.part_to_overwrite(part).ok().and_then(|(_, held)| held.into_iter().next());
        return bare(match held.map(|held| held.holds) {
            Some(PartitionContents::Other(looks)) if !looks.may_be_anything() => {
                format!("byte {offset} of {}", looks.like)
            }
            _ => format!("byte {offset} of unrecognised data"),
        });
    };
    let file_system = volume.flushed_file_system().clone();
    let spot = file_system.inspect().map(|inspect| (inspect, inspect.locate(offset)));
    match spot {
        Some((inspect, Ok(ByteUse::Structure { name, target }))) => {
            let field = target.and_then(|target| find_field(inspect, target, offset)).map(|(_, field)| field);
            BytePlace { partition: None, structure: name, field }
        }
        Some((_, Ok(ByteUse::Unused))) => bare("unused space".into()),
        Some((_, Err(obento_base::Error::NotFound))) => bare("space after the file system".into()),
        Some((inspect, _)) => of_files(&volume, Some(inspect), offset),
        None => of_files(&volume, None, offset),
    }
}

/// Returns the smallest field of `target` that contains byte `offset`, and the record that contains the
/// field.
fn find_field(inspect: &dyn Inspect, target: Target, offset: u64) -> Option<(Record, Field)> {
    let mut found: Option<(Record, Field)> = None;
    let _ = inspect.inspect(target, &mut |record| {
        let Ok(record) = record else { return };
        let holds =
            |field: &&Field| offset.checked_sub(field.offset).is_some_and(|inside| inside < field.len.into());
        let Some(field) = record.fields.iter().filter(holds).min_by_key(|field| field.len).cloned() else {
            return;
        };
        if found.as_ref().is_none_or(|(_, known)| field.len < known.len) {
            found = Some((record, field));
        }
    });
    found
}

/// Searches the tree for the file that byte `offset` belongs to.
fn of_files(volume: &Volume, inspect: Option<&dyn Inspect>, offset: u64) -> BytePlace {
    let mut known = HashSet::new();
    let entries =
        || Walk::new(volume.root()).filter_map(Result::ok).filter(|entry| entry.step != Step::Leave);
    let mut fresh = entries().filter(|entry| entry.attr.nlink <= 1 || known.insert(entry.node.ino()));
    let block_size = volume.statfs().map_or(512, |usage| u64::from(usage.block_size).max(1));
    if let Some((entry, at)) =
        fresh.find_map(|entry| data_at(&entry, offset, block_size).map(|at| (entry, at)))
    {
        let structure = format!("block {} of the file {}", at / block_size, quoted(&entry));
        return BytePlace { partition: None, structure, field: None };
    }
    let structure = |inspect: &dyn Inspect, entry: &Entry| {
        let is_directory = entry.attr.kind == FileKind::Directory;
        let listed = is_directory.then(|| find_field(inspect, Target::Directory(entry.node.ino()), offset));
        listed.flatten().or_else(|| find_field(inspect, Target::Inode(entry.node.ino()), offset))
    };
    let found = inspect.and_then(|inspect| {
        entries().find_map(|entry| structure(inspect, &entry).map(|(record, field)| (entry, record, field)))
    });
    match found {
        Some((entry, record, field)) => {
            let name = record.fields.iter().find(|field| matches!(field.name, "name" | "e_name"));
            let name = match name.map(|field| &field.value) {
                Some(obento_driver::FieldValue::Bytes(name)) => format!(" '{}'", escaped(name)),
                _ => String::new(),
            };
            let structure = format!("{}{name} of {}", record.kind, quoted(&entry));
            BytePlace { partition: None, structure, field: Some(field) }
        }
        None => {
            let structure = "metadata, or a file that has no name".into();
            BytePlace { partition: None, structure, field: None }
        }
    }
}

fn quoted(entry: &Entry) -> String {
    format!("'/{}'", escaped(&entry.path))
}

/// Returns the byte of a regular file that is stored at byte `offset` of the volume's device.
fn data_at(entry: &Entry, offset: u64, block_size: u64) -> Option<u64> {
    if entry.attr.kind != FileKind::Regular {
        return None;
    }
    let mut at = 0;
    // An unmapped range has no position.
    while let Ok(Some(run)) = entry.node.run(at, entry.attr.size.saturating_sub(at)) {
        let len = run.len().max(1);
        // The rest of the last block belongs to the file too.
        let taken = len.next_multiple_of(block_size);
        if let Span::Mapped(start) = run.span()
            && let Some(inside) = offset.checked_sub(start).filter(|&inside| inside < taken)
        {
            return Some(run.offset().saturating_add(inside));
        }
        at = run.offset().saturating_add(len);
    }
    None
}
