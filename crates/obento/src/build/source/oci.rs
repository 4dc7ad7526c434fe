//! An OCI image layout: a directory of blobs, and an index that names an image.
//!
//! Invariant: a blob is read only if its bytes have the digest by which it was named.
//! Source: OCI image specification: image-layout.md, image-index.md, manifest.md, descriptor.md.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use obento_host::HostError;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::archive::{self, Whiteouts};
use super::{Reader, open};

/// The most bytes of an index or a manifest.
const MAX_JSON: u64 = 4 << 20;
/// Indexes that name indexes.
const MAX_DEPTH: u32 = 4;

/// Reads the layers of the image in the layout `path`. Errors: Host; Damaged for what is no layout.
pub(super) fn read(reader: &mut Reader<'_>, path: &Path) -> Result<(), HostError> {
    let index = path.join("index.json");
    let mut text = Vec::new();
    open(&index)?
        .take(MAX_JSON)
        .read_to_end(&mut text)
        .map_err(|error| HostError::of_io("read", &index, &error))?;
    let layout = Layout { path, wanted: reader.settings.image.as_deref() };
    let manifest = layout.manifest(&layout.json(&index, &text)?, 0)?;
    let layers = manifest.get("layers").and_then(Value::as_array);
    let layers = layers.ok_or_else(|| layout.bad(&index, "its manifest names no layers"))?;
    for layer in layers {
        let (file, blob) = layout.blob(layer)?;
        reader.model.begin_layer();
        archive::read_file(reader, file, &blob, Whiteouts::Hide)?;
    }
    Ok(())
}

struct Layout<'a> {
    path: &'a Path,
    /// Which image, where an index names several.
    wanted: Option<&'a str>,
}

/// What names an image in an index: its tag, its platform, its digest.
fn names(descriptor: &Value) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let tag = descriptor.get("annotations").and_then(|notes| notes.get("org.opencontainers.image.ref.name"));
    let platform = descriptor.get("platform").and_then(|platform| {
        let part = |key| text(platform.get(key));
        let start = format!("{}/{}", part("os")?, part("architecture")?);
        Some(part("variant").map_or(start.clone(), |variant| format!("{start}/{variant}")))
    });
    [text(tag), platform, text(descriptor.get("digest"))].into_iter().flatten().collect()
}

impl Layout<'_> {
    fn bad(&self, path: &Path, reason: impl std::fmt::Display) -> HostError {
        HostError::Damaged { path: path.into(), format: "OCI image", reason: reason.to_string() }
    }

    fn json(&self, path: &Path, text: &[u8]) -> Result<Value, HostError> {
        serde_json::from_slice(text).map_err(|error| self.bad(path, error))
    }

    /// The manifest that an index leads to: its only one, or the one that is wanted.
    fn manifest(&self, index: &Value, depth: u32) -> Result<Value, HostError> {
        if index.get("layers").is_some() {
            return Ok(index.clone());
        }
        let manifests = index.get("manifests").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let chosen = match manifests {
            [one] => one,
            [] => return Err(self.bad(self.path, "it names no image")),
            // Which of them must not depend on the machine that builds.
            many => self.choose(many)?,
        };
        if depth >= MAX_DEPTH {
            return Err(self.bad(self.path, "its indexes lead nowhere"));
        }
        let (file, path) = self.blob(chosen)?;
        let mut text = Vec::new();
        file.take(MAX_JSON)
            .read_to_end(&mut text)
            .map_err(|error| HostError::of_io("read", &path, &error))?;
        self.manifest(&self.json(&path, &text)?, depth + 1)
    }

    /// The one of several images that is wanted. Errors: none is, or several are so called.
    fn choose<'v>(&self, many: &'v [Value]) -> Result<&'v Value, HostError> {
        let is_wanted = |descriptor: &&Value| {
            self.wanted.is_some_and(|wanted| names(descriptor).iter().any(|name| name == wanted))
        };
        let mut chosen = many.iter().filter(is_wanted);
        if let (Some(one), None) = (chosen.next(), chosen.next()) {
            return Ok(one);
        }
        let all = many.iter().flat_map(names).map(|name| crate::text::escaped(name.as_bytes()).to_string());
        let all: Vec<String> = all.collect();
        let count = many.len();
        Err(self.bad(self.path, format!("it has {count} images; say which: {}", all.join(", "))))
    }

    /// Opens the blob that a descriptor names, once its bytes are proved.
    fn blob(&self, descriptor: &Value) -> Result<(File, PathBuf), HostError> {
        let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
        let hex = digest.strip_prefix("sha256:").filter(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        let hex =
            hex.ok_or_else(|| self.bad(self.path, format!("'{}' is no digest", digest.escape_default())))?;
        let path = self.path.join("blobs").join("sha256").join(hex);
        let mut file = open(&path)?;
        let failed = |error: std::io::Error| HostError::of_io("read", &path, &error);
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => sum.update(&buffer[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let found: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != hex {
            return Err(self.bad(&path, format!("its digest is {found}")));
        }
        file.rewind().map_err(failed)?;
        Ok((file, path))
    }
}
