//! `obento diff --bytes`: compares two images byte by byte, and names the first difference.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;

use obento::Image;
use obento::address::{Address, Operand};
use obento::base::Quantity;
use obento::diff::{ByteDifference, BytePlace, diff_bytes};
use obento::driver::{Access, Field, FieldValue};
use obento::host::interrupt;

use crate::context::Context;
use crate::json::{Line, hex};
use crate::open;
use crate::output::{Outcome, Output};
use crate::progress::Progress;
use crate::report::{Report, printable};

/// Compares the images that `sides` name.
pub(super) fn run(sides: &[OsString], context: &Context) -> Outcome {
    open::seal_before_decoding(sides, open::BareOperand::Image, Access::ReadOnly, context);
    let images = sides.iter().map(|side| open_image(side, context)).collect::<Result<Vec<_>, _>>()?;
    let [one, other] = &images[..] else { return Ok(()) };
    context.seal();
    let mut progress = Progress::new(context.messages(), "comparing");
    let total = one.device().len().min(other.device().len());
    let mut watch = |done| {
        progress.update(done, Some(total), b"");
        if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = diff_bytes(one, other, &mut watch);
    drop(progress);
    // A part that cannot be read was not compared.
    context.report_damage(|report| context.fail(report));
    let shown = sides.iter().map(|side| side.as_encoded_bytes()).collect::<Vec<_>>();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            context.fail(&Report::on("cannot compare", shown[0], error));
            return Ok(());
        }
    };
    if interrupt::is_requested() {
        context.raise(2);
        return Ok(());
    }
    let Some(found) = found else { return Ok(()) };
    context.raise(1);
    let mut out = Output::stdout();
    if context.json() {
        json(&found, shown[0], shown[1]).write(&mut out)?;
    } else {
        text(&mut out, &found, shown[0], shown[1])?;
    }
    out.finish()
}

/// Opens the image that an argument names. Fails if it names a place in an image, or no image.
fn open_image(side: &OsStr, context: &Context) -> Result<Rc<Image>, Report> {
    let path: PathBuf = match open::operand(side, context)? {
        Operand::Host(path) => path,
        Operand::Image(Address { image, part: None, place: None }) => image,
        Operand::Image(_) | Operand::Stdio => {
            let report = Report::on("cannot compare", side.as_encoded_bytes(), "not an image");
            return Err(report.help("use --bytes with two images: obento diff --bytes one.img other.img"));
        }
    };
    if let Some(hint) = open::partition_hint(side.as_encoded_bytes()) {
        let report = Report::on("cannot compare", side.as_encoded_bytes(), "a partition is not an image");
        return Err(report.help(hint));
    }
    context.quiet_image(&path).map_err(open::cannot_open)
}

/// Writes the difference in the format of `cmp`, and the structure where it is.
fn text(out: &mut Output, found: &ByteDifference, one: &[u8], other: &[u8]) -> std::io::Result<()> {
    out.write_name(one)?;
    out.write_all(b" and ")?;
    out.write_name(other)?;
    write!(out, " differ, first at byte {}", found.offset)?;
    let place = |place: &Option<BytePlace>| {
        printable(place.as_ref().map_or("nothing".into(), ToString::to_string).as_bytes())
    };
    let (first, second) = (place(&found.places.0), place(&found.places.1));
    if first == second {
        writeln!(out, ": {first}")?;
    } else {
        out.write_all(b"\n  ")?;
        out.write_name(one)?;
        write!(out, ": {first}\n  ")?;
        out.write_name(other)?;
        writeln!(out, ": {second}")?;
    }
    if let (Some(a), Some(b)) = (value(&found.places.0), value(&found.places.1))
        && a != b
    {
        writeln!(out, "  {a} and {b}")?;
    }
    let differ = if found.bytes == 1 { "differs" } else { "differ" };
    let (bytes, blocks) = (Quantity::new(found.bytes, "byte"), Quantity::new(found.blocks, "block"));
    writeln!(out, "  {bytes} {differ} in {blocks} of 4096 bytes")?;
    if found.lens.0 != found.lens.1 {
        writeln!(out, "  the sizes are {} and {} bytes", found.lens.0, found.lens.1)?;
    }
    Ok(())
}

/// Returns the value of the field at a difference.
fn value(place: &Option<BytePlace>) -> Option<String> {
    let Field { value, .. } = place.as_ref()?.field.as_ref()?;
    Some(match value {
        FieldValue::Number(number) => number.to_string(),
        FieldValue::Hex(number) => format!("{number:#x}"),
        FieldValue::Bytes(bytes) => super::value_text(bytes),
        FieldValue::Text(text) => text.clone(),
    })
}

fn json(found: &ByteDifference, one: &[u8], other: &[u8]) -> Line {
    let side = |line: Line, side: &str, path: &[u8], place: &Option<BytePlace>, len: u64| {
        let line = line.bytes(side, path).field(&format!("{side}_size"), len);
        let Some(place) = place else { return line };
        let line = line
            .field(&format!("{side}_partition"), place.partition)
            .field(&format!("{side}_structure"), &place.structure);
        let Some(field) = &place.field else { return line };
        let line = line.field(&format!("{side}_field"), field.name);
        match &field.value {
            FieldValue::Number(number) | FieldValue::Hex(number) => {
                line.field(&format!("{side}_value"), number)
            }
            FieldValue::Bytes(bytes) => line.field(&format!("{side}_hex"), hex(bytes)),
            FieldValue::Text(text) => line.field(&format!("{side}_value"), text),
        }
    };
    let line = Line::new("byte_difference")
        .field("offset", found.offset)
        .field("bytes", found.bytes)
        .field("blocks", found.blocks);
    let line = side(line, "left", one, &found.places.0, found.lens.0);
    side(line, "right", other, &found.places.1, found.lens.1)
}
