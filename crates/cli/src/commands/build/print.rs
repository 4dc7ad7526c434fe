//! `obento build --print-layout IMAGE`: the layout of an existing disk.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use obento::base::is_printable;
use obento::driver::Access;
use obento::partition::{Partition, PartitionType, Scheme, Table};

use crate::context::Context;
use crate::open;
use crate::output::{Outcome, Output};
use crate::parse::attributes;
use crate::report::Report;

/// Prints the layout of the disk `image`.
pub(super) fn print(image: &OsString, context: &Context) -> Outcome {
    let shown = image.as_bytes();
    let address = open::image_address(image, context)?;
    if address.place.is_some() || address.part.is_some() {
        return Err(Report::on("cannot print the layout of", shown, "not a whole disk").into());
    }
    open::seal_before_decoding([image], open::BareOperand::Image, Access::ReadOnly, context);
    let image = context.image(&address.image)?;
    context.seal();
    let wrong = |why: &str| Report::on("cannot print the layout of", shown, why);
    let table = image.table().ok_or_else(|| wrong("no partition table was found"))?;
    if table.sector_size != 512 {
        return Err(
            wrong("its sectors do not have 512 bytes; a layout describes disks with such sectors").into()
        );
    }
    let (text, renumbered) = layout(table, image.device().len());
    let mut out = Output::stdout();
    out.write_all(
        b"# This layout describes the partition table. The contents of partitions, the boot code of the MBR and boot\n\
          # loaders outside of partitions are left out: 'obento help layout' describes content = \"raw:FILE\" and [[blob]].\n",
    )?;
    out.write_all(text.as_bytes())?;
    if !renumbered.is_empty() {
        let note = "a layout numbers the partitions of an MBR from 1 to 4, or 1, 2, 3, 5 and so on; \
                    other numbers change";
        context.note(shown, format!("{note}: {}", renumbered.join(", ")));
    }
    let is_empty = |container: &Partition| {
        table.partitions.iter().all(|other| other.number <= 4 || !container.range().contains(&other.start))
    };
    for container in table.partitions.iter().filter(|partition| partition.kind.is_container()) {
        if is_empty(container) {
            let number = container.number;
            context
                .note(shown, format!("the extended partition {number} has no partitions, and is left out"));
        }
    }
    out.finish()
}

/// Returns the layout, and descriptions of the numbers that change.
fn layout(table: &Table, len: u64) -> (String, Vec<String>) {
    let is_mbr = table.scheme == Scheme::Mbr;
    let mut partitions: Vec<&Partition> =
        table.partitions.iter().filter(|partition| !partition.kind.is_container()).collect();
    partitions.sort_by_key(|partition| partition.start);
    let primary = if partitions.len() > 4 { 3 } else { 4 };
    let mut text = String::new();
    let kind = if is_mbr { "mbr" } else { "gpt" };
    let id = if is_mbr { format!("0x{}", table.id) } else { table.id.to_string() };
    let _ = write!(text, "[disk]\ntable = \"{kind}\"\nsize = \"{len}\"\nuuid = \"{id}\"\n");
    let mut renumbered = Vec::new();
    for (partition, next) in partitions.into_iter().zip((1..=primary).chain(5..)) {
        let Partition { number, start, len, uuid, name, .. } = partition;
        let _ = write!(text, "\n[[partition]]\n");
        if is_mbr && *number != next {
            renumbered.push(format!("{number} becomes {next}"));
            let _ = writeln!(text, "# number {number} of the disk");
        }
        let _ = writeln!(text, "type = \"{}\"", type_name(partition.kind));
        if !is_mbr {
            let name = String::from_utf8_lossy(name);
            let _ = write!(text, "number = \"{number}\"\nlabel = {}\nuuid = \"{uuid}\"\n", quoted(&name));
        }
        let _ = write!(text, "offset = \"{start}\"\nsize = \"{len}\"\n");
        let names = attributes::names(partition.attributes, table.scheme);
        if !names.is_empty() {
            let _ = writeln!(text, "attributes = {names:?}");
        }
        let _ = writeln!(text, "content = \"empty\"");
    }
    (text, renumbered)
}

/// Returns the name of a type, or its GUID or number.
fn type_name(kind: PartitionType) -> String {
    let named = |name: &&str| PartitionType::parse(name, Scheme::Gpt) == Some(kind);
    match kind {
        PartitionType::Mbr(number) => format!("{number:#04x}"),
        PartitionType::Gpt(guid) => {
            PartitionType::known(Scheme::Gpt).find(named).map_or_else(|| guid.to_string(), str::to_owned)
        }
    }
}

/// Returns a basic string of TOML.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if is_printable(c) => c.to_string(),
        c if u32::from(c) > 0xffff => format!("\\U{:08x}", u32::from(c)),
        c => format!("\\u{:04x}", u32::from(c)),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_strings_of_toml() {
        assert_eq!(quoted("a \"b\" \\ \u{1}\u{e4}"), "\"a \\\"b\\\" \\\\ \\u0001\u{e4}\"");
        assert_eq!(quoted("\u{202e}\u{9b}\u{e0041}"), "\"\\u202e\\u009b\\U000e0041\"");
        assert_eq!(type_name(PartitionType::Mbr(7)), "0x07");
        assert_eq!(type_name(PartitionType::parse("esp", Scheme::Gpt).unwrap()), "esp");
    }
}
