//! Building an image with its contents, and an empty one.
//!
//! Compressed data has no place before it is compressed, so that the whole image is made in memory when it is planned.
//! Memory: the length of the image.

mod flash;
mod settings;
mod tree;

use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Feature;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;
use obento_driver::{
    Build, BuildError, BuildOptions, BuildPlan, Fact, FileBytes, Format, FormatError, FormatNotice,
    FormatOptions, Formatted, NodeId, Setting, Tree, erase_signatures,
};

use self::flash::empty_block;
use self::settings::{SETTINGS, Shape};
use self::tree::TreeWriter;
use crate::open::Jffs2Driver;
use crate::scan::IMAGE_MAX;

/// The start of a device, where formats have their signatures. That of Btrfs is behind 64 KiB, and that of UDF behind
/// 512 KiB.
const FRONT: u64 = 1 << 20;
/// Bytes that are written at once.
const WRITTEN: usize = 1 << 20;

impl Format for Jffs2Driver {
    fn types(&self) -> &'static [&'static str] {
        &["jffs2"]
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let shape = Shape::read(options)?;
        let len = options.length_on(device_len)?;
        if len > IMAGE_MAX {
            return Err(FormatError::TooLarge { len, max: IMAGE_MAX });
        }
        if shape.marker == 0 {
            // Without any node, no reader recognises the volume.
            return Err(FormatError::Needs { what: "an empty volume", needs: "clean markers" });
        }
        if len < shape.erase_block.into() {
            return Err(FormatError::TooSmall { what: "an erase block", len });
        }
        Ok(described(shape, len, 0, options))
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let formatted = Format::plan(self, device.len(), options)?;
        let shape = Shape::read(options)?;
        let block = empty_block(shape);
        erase_signatures(device, options.length_on(device.len())?, options.contents)?;
        // The signatures of an old volume come first: a start of zeros is not the start of any volume, and not that of
        // an erased erase block, after which a volume may follow.
        let len = formatted.blocks.saturating_mul(shape.erase_block.into());
        let erased = FRONT.max(shape.erase_block.into()).min(len);
        device.write_at(0, &alloc::vec![0; to_usize(erased)])?;
        device.flush()?;
        for number in (1..formatted.blocks).rev() {
            device.write_at(number.saturating_mul(shape.erase_block.into()), &block)?;
        }
        // The signature comes last.
        device.flush()?;
        device.write_at(0, &block)?;
        device.flush()?;
        Ok(formatted)
    }
}

fn described(shape: Shape, len: u64, inodes: u64, options: &FormatOptions) -> Formatted {
    let label = (!options.label.is_empty()).then(|| FormatNotice::LabelCut(Vec::new()));
    let order = Fact { name: "byte order", value: shape.order.name().to_string() };
    let page = Fact { name: "page size", value: shape.page.to_string() };
    Formatted {
        fs_type: "jffs2",
        block_size: shape.erase_block,
        blocks: len.checked_div(shape.erase_block.into()).unwrap_or(0),
        inodes,
        notices: label.into_iter().collect(),
        facts: Vec::from([order, page]),
        ..Formatted::default()
    }
}

impl Build for Jffs2Driver {
    fn plan<'t>(&self, _: &'t Tree, _: &BuildOptions) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        Err(FormatError::Unsupported(Feature::Named("an image without the bytes of its files")).into())
    }

    fn plan_with<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
        bytes: &dyn FileBytes,
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        let shape = Shape::read(&options.format)?;
        let mut writer = TreeWriter::new(shape, tree, bytes);
        writer.run()?;
        let notices = writer.notices();
        let mut image = writer.flash;
        if shape.pads {
            image.fill();
        }
        let needed = to_u64(image.bytes.len());
        let len = options.format.len.unwrap_or(needed);
        if len < needed {
            return Err(BuildError::TooSmall { len, needed });
        }
        let mut formatted = described(shape, len, tree.len().into(), &options.format);
        // An image may end within its last erase block.
        formatted.blocks = len.div_ceil(u64::from(shape.erase_block).max(1));
        formatted.notices.extend(notices);
        formatted.facts.push(Fact { name: "nodes", value: image.nodes.to_string() });
        Ok(Box::new(Plan { image: image.bytes, len, formatted }))
    }
}

/// A complete image in memory.
struct Plan {
    image: Vec<u8>,
    len: u64,
    formatted: Formatted,
}

impl BuildPlan for Plan {
    fn formatted(&self) -> &Formatted {
        &self.formatted
    }

    fn device_len(&self) -> u64 {
        self.len
    }

    fn places(&self, _: NodeId, _: &mut dyn FnMut(Range<u64>, u64)) {}

    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        // The rest of the device is erased.
        let erased = alloc::vec![0xff; WRITTEN];
        let mut at = to_u64(self.image.len());
        while at < self.len {
            let part = to_usize(self.len.saturating_sub(at)).min(WRITTEN);
            device.write_at(at, erased.get(..part).unwrap_or_default())?;
            at = at.saturating_add(to_u64(part));
        }
        // The start is written last.
        for (number, part) in (0_u64..).zip(self.image.chunks(WRITTEN)).collect::<Vec<_>>().into_iter().rev()
        {
            device.write_at(number.saturating_mul(to_u64(WRITTEN)), part)?;
        }
        Ok(())
    }
}
