//! Reads an OCI image layout or the output of `docker save`: blobs, and an index that refers to an image.
//!
//! Invariant: a blob is used only if its digest, its length and its type equal those in its descriptor. A layer is
//! used only if its uncompressed bytes have the digest in the configuration of the image. Two readers therefore
//! cannot interpret one image differently.
//! Invariant: the digest of a blob is computed from the bytes that are used, in the same reading. A process that
//! changes the blob meanwhile cannot change the image without an error.
//! Source: OCI image specification: image-layout.md, image-index.md, manifest.md, descriptor.md, config.md,
//! media-types.md; moby, image/tarexport, for `manifest.json`.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::Path;

use obento_host::compressed::{UnpackError, UnpackLimits};
use obento_host::{HostError, SelectionError};
use obento_open::text::escaped;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::SourceReader;
use super::archive::{self, ContainerLayer};
use super::store::{FilePart, Store};

/// Maximum number of bytes of an index, a manifest or a configuration.
const MAX_JSON: u64 = 4 << 20;
/// Maximum number of nested indexes.
const MAX_DEPTH: u32 = 4;
/// Maximum number of layers of an image. overlayfs of Linux stacks 500.
const MAX_LAYERS: usize = 1000;

/// Reads the layers of the image in the layout `path`. Fails with `Host`, and with `Damaged` if it is not a layout.
pub(super) fn read(reader: &mut SourceReader<'_>, path: &Path) -> Result<(), HostError> {
    let store = Store::open(reader, path)?;
    if !store.has("index.json") && !store.has("manifest.json") {
        return Err(HostError::Unselected { path: path.into(), reason: SelectionError::NotALayout });
    }
    let image = Layout { path, store: &store, wanted: reader.settings.image.as_deref() };
    let layers = if store.has("index.json") || !store.has("manifest.json") {
        image.layers()?
    } else {
        image.saved()?
    };
    let limit = unpacked_at_most(reader.settings.unpack, &store, &layers)?;
    let (mut left, mut seen) = (limit, HashSet::new());
    for NamedLayer { blob: NamedBlob { part, digest }, diff_id } in layers {
        reader.model.begin_layer();
        let path = part.path().to_owned();
        if !seen.insert(part.place()?) {
            left = left_after(left, part.len(), limit, &path)?;
        }
        let (digest, diff_id) = (digest.as_deref(), diff_id.as_deref());
        let mut layer = ContainerLayer { path: &path, digest, diff_id, unpacks: Some(&mut left) };
        archive::read_layer(reader, part, &mut layer).map_err(|error| with_limit(error, limit))?;
    }
    Ok(())
}

/// Returns the rest of `limit` after `len` bytes of a layer that is named again, since each copy takes space.
fn left_after(left: u64, len: u64, limit: u64, path: &Path) -> Result<u64, HostError> {
    let error = UnpackError::Bytes { limit };
    let exceeded = || HostError::Unpack { operation: "decompress", path: path.into(), error };
    left.checked_sub(len).ok_or_else(exceeded)
}

/// Replaces the rest of the limit, which a layer exceeds, with the limit of all layers.
fn with_limit(error: HostError, limit: u64) -> HostError {
    match error {
        HostError::Unpack { operation, path, error: UnpackError::Bytes { .. } } => {
            HostError::Unpack { operation, path, error: UnpackError::Bytes { limit } }
        }
        error => error,
    }
}

/// Returns how many bytes all layers may unpack to. A layer that is named again, also by a link, does not raise the
/// limit. Fails with `System`.
fn unpacked_at_most(limits: UnpackLimits, store: &Store, layers: &[NamedLayer]) -> Result<u64, HostError> {
    let parts = layers.iter().map(|layer| &layer.blob.part);
    let distinct: HashMap<_, u64> =
        parts.map(|part| Ok((part.place()?, part.len()))).collect::<Result<_, HostError>>()?;
    let len = distinct.into_values().fold(0, u64::saturating_add);
    Ok(limits.bytes_for(len.min(store.file_len().unwrap_or(u64::MAX))))
}

struct Layout<'a> {
    path: &'a Path,
    store: &'a Store,
    /// The image to select, if an index names several.
    wanted: Option<&'a str>,
}

/// The kind of a blob, by its media type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Index,
    Manifest,
    Config,
    Layer,
}

impl Kind {
    /// Returns the kind of the media type `text`. Source: media-types.md, with the types of Docker that it
    /// lists.
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "application/vnd.oci.image.index.v1+json"
            | "application/vnd.docker.distribution.manifest.list.v2+json" => Self::Index,
            "application/vnd.oci.image.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.v2+json" => Self::Manifest,
            "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json" => {
                Self::Config
            }
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Self::Layer,
            _ => return None,
        })
    }

    fn words(self) -> &'static str {
        match self {
            Self::Index => "an index of images",
            Self::Manifest => "a manifest of an image",
            Self::Config => "a configuration of an image",
            Self::Layer => "a layer of a file system",
        }
    }
}

fn media_type(value: &Value) -> Option<&str> {
    value.get("mediaType").and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Returns the names of an image in an index: its tag, its platform, its digest.
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

/// Returns whether a descriptor refers to an attestation, which BuildKit stores beside its image.
fn is_attestation(descriptor: &Value) -> bool {
    let kind = descriptor.get("annotations").and_then(|notes| notes.get("vnd.docker.reference.type"));
    kind.and_then(Value::as_str) == Some("attestation-manifest")
}

/// A file of the image, and its digest in the descriptor. The bytes are not verified yet.
struct NamedBlob {
    part: FilePart,
    digest: Option<String>,
}

/// A layer, and the digest of its uncompressed bytes.
struct NamedLayer {
    blob: NamedBlob,
    diff_id: Option<String>,
}

/// The state of the selection of an image. One of several nested indexes must name it.
#[derive(Default)]
struct Selected {
    is_matched: bool,
    /// The names of the images so far, for messages.
    names: Vec<String>,
}

impl Layout<'_> {
    fn bad(&self, path: &Path, reason: impl std::fmt::Display) -> HostError {
        HostError::Damaged { path: path.into(), format: "OCI image", reason: reason.to_string() }
    }

    /// Returns the error for a valid index from which no image can be selected.
    fn unselected(&self, reason: SelectionError) -> HostError {
        HostError::Unselected { path: self.path.into(), reason }
    }

    /// Returns the layers of the image that the index names.
    fn layers(&self) -> Result<Vec<NamedLayer>, HostError> {
        let index = self.json(self.file("index.json")?)?;
        let manifest = self.manifest(index, Some(Kind::Index), 0, &mut Selected::default())?;
        let layers = manifest.get("layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| self.bad(self.path, "the manifest lists no layers"))?;
        let config = match manifest.get("config") {
            Some(descriptor) => Some(self.config(descriptor)?),
            None => None,
        };
        self.with_digests(layers, config.as_ref(), |layer| self.blob(layer, Some(Kind::Layer)))
    }

    /// Returns the layers of the image that the `manifest.json` of `docker save` names.
    fn saved(&self) -> Result<Vec<NamedLayer>, HostError> {
        let images = self.json(self.file("manifest.json")?)?;
        let images = images.as_array().map_or(&[][..], Vec::as_slice);
        let tags = |image: &Value| -> Vec<String> {
            let tags = image.get("RepoTags").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            tags.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut selected = Selected::default();
        let image = self.only(images, tags, &mut selected)?;
        self.expect_match(&selected)?;
        let file = |value: Option<&Value>| match value.and_then(Value::as_str) {
            Some(path) => self.file(path),
            None => Err(self.bad(self.path, "the manifest contains no file name where one is required")),
        };
        let config = self.json(file(image.get("Config"))?)?;
        let layers = image.get("Layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| self.bad(self.path, "the manifest lists no layers"))?;
        self.with_digests(layers, Some(&config), |layer| file(Some(layer)))
    }

    /// Opens `layers`, each with its digest in `config`.
    fn with_digests(
        &self,
        layers: &[Value],
        config: Option<&Value>,
        open: impl Fn(&Value) -> Result<NamedBlob, HostError>,
    ) -> Result<Vec<NamedLayer>, HostError> {
        if layers.len() > MAX_LAYERS {
            return Err(self.bad(self.path, format!("the image has more than {MAX_LAYERS} layers")));
        }
        let ids = config.and_then(|config| config.get("rootfs")).and_then(|root| root.get("diff_ids"));
        let ids = ids.and_then(Value::as_array);
        if let Some(ids) = ids.filter(|ids| ids.len() != layers.len()) {
            let (ids, layers) = (ids.len(), layers.len());
            return Err(self.bad(
                self.path,
                format!(
                    "the manifest and the configuration disagree on the number of layers: {layers} and {ids}"
                ),
            ));
        }
        let id =
            |at: usize| ids.and_then(|ids| ids.get(at)).map(|id| id.as_str().unwrap_or_default().to_owned());
        let named = |(at, layer)| Ok(NamedLayer { blob: open(layer)?, diff_id: id(at) });
        layers.iter().enumerate().map(named).collect()
    }

    fn config(&self, descriptor: &Value) -> Result<Value, HostError> {
        self.json(self.blob(descriptor, Some(Kind::Config))?)
    }

    /// Returns a file that no descriptor names.
    fn file(&self, path: &str) -> Result<NamedBlob, HostError> {
        Ok(NamedBlob { part: self.store.part(path)?, digest: None })
    }

    /// Reads a blob of JSON, and verifies the bytes that it decodes.
    fn json(&self, NamedBlob { mut part, digest }: NamedBlob) -> Result<Value, HostError> {
        let path = part.path().to_owned();
        if part.len() > MAX_JSON {
            return Err(
                self.bad(&path, format!("the file has {} bytes, and the maximum is {MAX_JSON}", part.len()))
            );
        }
        let mut text = Vec::new();
        part.read_to_end(&mut text).map_err(|error| HostError::of_io("read", &path, &error))?;
        if let Some(digest) = digest {
            expect_digest(Sha256::new_with_prefix(&text), &digest, &path)?;
        }
        serde_json::from_slice(&text).map_err(|error| self.bad(&path, error))
    }

    /// Returns the manifest that an index leads to: the only one, or the selected one. `named` is the kind in
    /// its descriptor.
    fn manifest(
        &self,
        value: Value,
        named: Option<Kind>,
        depth: u32,
        selected: &mut Selected,
    ) -> Result<Value, HostError> {
        let (has_layers, has_manifests) = (value.get("layers").is_some(), value.get("manifests").is_some());
        if has_layers && has_manifests {
            return Err(self.bad(self.path, "ambiguous: a blob is both an index and a manifest"));
        }
        let kind = if has_layers { Kind::Manifest } else { Kind::Index };
        // An index.json may be a manifest itself, as older tools wrote it.
        let said = media_type(&value).map(Kind::of);
        if said.is_some_and(|said| said != Some(kind))
            || depth > 0 && named.is_some_and(|named| named != kind)
        {
            return Err(self.bad(
                self.path,
                format!("a blob is {}, but its descriptor has another media type", kind.words()),
            ));
        }
        if has_layers {
            self.expect_match(selected)?;
            return Ok(value);
        }
        let manifests = value.get("manifests").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let manifests: Vec<Value> = manifests.iter().filter(|one| !is_attestation(one)).cloned().collect();
        let chosen = self.only(&manifests, names, selected)?;
        if depth >= MAX_DEPTH {
            return Err(self.bad(self.path, "too many levels of indexes"));
        }
        let named = match media_type(chosen) {
            None => None,
            Some(text) => match Kind::of(text) {
                Some(kind @ (Kind::Index | Kind::Manifest)) => Some(kind),
                _ => return Err(self.no_kind(text, Kind::Manifest)),
            },
        };
        let next = self.json(self.blob(chosen, None)?)?;
        self.manifest(next, named, depth + 1, selected)
    }

    /// Returns the only one of several images, or the selected one. Fails if no image or several images match.
    fn only<'v>(
        &self,
        images: &'v [Value],
        names: impl Fn(&Value) -> Vec<String>,
        selected: &mut Selected,
    ) -> Result<&'v Value, HostError> {
        let is_wanted =
            |image: &&Value| self.wanted.is_some_and(|wanted| names(image).iter().any(|name| name == wanted));
        let mut chosen = images.iter().filter(is_wanted);
        if let (Some(one), None) = (chosen.next(), chosen.next()) {
            selected.is_matched = true;
            return Ok(one);
        }
        let all = images.iter().flat_map(&names);
        selected.names.extend(all.map(|name| escaped(name.as_bytes()).to_string()));
        match images {
            // An index of one index has no other image. A later index may contain the selected one.
            [one] => Ok(one),
            [] => Err(self.unselected(SelectionError::NoImage)),
            // The selection must not depend on the machine that builds.
            _ => {
                let (count, names) = (images.len(), selected.names.clone());
                Err(self.unselected(SelectionError::SeveralImages { count, names }))
            }
        }
    }

    /// Fails if an image was requested and no index named it.
    fn expect_match(&self, selected: &Selected) -> Result<(), HostError> {
        let Some(wanted) = self.wanted.filter(|_| !selected.is_matched) else { return Ok(()) };
        let wanted = escaped(wanted.as_bytes()).to_string();
        Err(self.unselected(SelectionError::NoSuchImage { wanted, names: selected.names.clone() }))
    }

    fn no_kind(&self, found: &str, wanted: Kind) -> HostError {
        let found = escaped(found.as_bytes());
        self.bad(self.path, format!("a blob has the media type '{found}', but must be {}", wanted.words()))
    }

    /// Opens the blob that a descriptor names with `kind`, and verifies its length.
    fn blob(&self, descriptor: &Value, kind: Option<Kind>) -> Result<NamedBlob, HostError> {
        if let (Some(kind), Some(text)) = (kind, media_type(descriptor))
            && Kind::of(text) != Some(kind)
        {
            return Err(self.no_kind(text, kind));
        }
        let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
        let hex = digest.strip_prefix("sha256:").filter(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        let hex = hex.ok_or_else(|| {
            self.bad(self.path, format!("'{}' is not a SHA-256 digest", escaped(digest.as_bytes())))
        })?;
        let part = self.store.part(&format!("blobs/sha256/{hex}"))?;
        let path = part.path().to_owned();
        if let Some(size) = descriptor.get("size").and_then(Value::as_u64).filter(|&size| size != part.len())
        {
            return Err(
                self.bad(&path, format!("the file has {} bytes, but the image requires {size}", part.len()))
            );
        }
        Ok(NamedBlob { part, digest: Some(digest.to_owned()) })
    }
}

/// Compares the digest of the bytes of the blob `path` with `expected`. Fails with `Damaged`.
pub(super) fn expect_digest(found: Sha256, expected: &str, path: &Path) -> Result<(), HostError> {
    let found = text(found);
    if found == expected {
        return Ok(());
    }
    let reason = format!("the digest of the data is {found}");
    Err(HostError::Damaged { path: path.into(), format: "OCI image", reason })
}

/// Formats a digest as in descriptors.
pub(super) fn text(sum: Sha256) -> String {
    let hex: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
