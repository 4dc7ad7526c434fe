//! Writes archives from a pipe. The bytes of files are written to the image on arrival, at positions that the driver
//! assigns. The volume is planned around them later.

use std::ops::Range;
use std::path::Path;

use obento_driver::tree::DataId;
use obento_driver::{BuildPlan, Receive, Tree, TreeBuilder};
use obento_host::HostError;
use obento_host::build::{FreshFile, StreamedImage};
use obento_open::Registry;

use super::driver_options::{build_options, with_builder};
use super::{BuildFailure, BuildSettings};

/// The block size in bytes if the settings contain none. It only decides which gaps are written as zeros.
const BLOCK: u64 = 4096;

/// An image that receives files before it is planned.
pub(super) struct Stream {
    receive: Box<dyn Receive>,
    streamed_image: StreamedImage,
    /// The ranges of the current file, and the position of each.
    places: Vec<(Range<u64>, u64)>,
    /// The number of bytes that were received and written.
    bytes: u64,
}

impl Stream {
    /// Begins an image at `out`, if the driver supports that. Fails with `UnknownType`, the errors of the driver for
    /// the settings or `Host`.
    pub(super) fn begin(
        out: &Path,
        settings: &BuildSettings,
        registry: &Registry,
    ) -> Result<Option<Self>, BuildFailure> {
        let root = TreeBuilder::bare_directory(obento_base::Timestamp::EPOCH);
        let nothing = TreeBuilder::new(root).finish();
        let options = build_options(&nothing, settings);
        let begun = with_builder(settings, registry, |builder| builder.receive(&options))?;
        let Some(receive) = begun.map_err(|error| BuildFailure::of_plan(error, &nothing))? else {
            return Ok(None);
        };
        let fresh = FreshFile::new(out, 0)?;
        let block = settings.block_size.map_or(BLOCK, u64::from);
        let streamed_image = StreamedImage::new(fresh, block, settings.size.unwrap_or(u64::MAX));
        Ok(Some(Self { receive, streamed_image, places: Vec::new(), bytes: 0 }))
    }

    /// Begins file number `data` of `size` bytes with data in `ranges`. Fails with `Host`, if no volume can store it.
    pub(super) fn file(&mut self, data: u32, size: u64, ranges: &[Range<u64>]) -> Result<(), HostError> {
        let places = &mut self.places;
        places.clear();
        let placed =
            self.receive.place(DataId(data), size, ranges, &mut |range, offset| places.push((range, offset)));
        placed.map_err(|error| HostError::Stream {
            operation: "allocate space for the files from",
            path: "standard input".into(),
            reason: error.to_string(),
        })
    }

    /// Writes bytes of the current file at `at`. Fails with `Host`.
    pub(super) fn write(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<(), HostError> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let first = self.places.partition_point(|(range, _)| range.end <= at);
            // All bytes of the current file are within its ranges.
            let Some((range, offset)) = self.places.get(first).filter(|(range, _)| range.start <= at) else {
                return Ok(());
            };
            let len = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(bytes.len());
            self.streamed_image.write(offset + (at - range.start), &bytes[..len])?;
            bytes = &bytes[len..];
            at += len as u64;
        }
        Ok(())
    }

    /// Plans the volume of `tree`, and sets the length of its image. Returns the number of received bytes. Fails with
    /// the errors of the driver or `Host`.
    pub(super) fn plan<'t>(
        self,
        tree: &'t Tree,
        settings: &BuildSettings,
    ) -> Result<(Box<dyn BuildPlan + 't>, FreshFile, u64), BuildFailure> {
        let options = build_options(tree, settings);
        let mut gone: Vec<Range<u64>> = Vec::new();
        let planned = self.receive.plan(tree, &options, &mut |range| match gone.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => gone.push(range),
        });
        let plan = planned.map_err(|error| BuildFailure::of_plan(error, tree))?;
        let fresh = self.streamed_image.finish(plan.device_len(), &gone)?;
        Ok((plan, fresh, self.bytes))
    }
}
