//! Builds of container images whose blobs another process changes meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use obento::build::{BuildFailure, BuildSettings, BuildSource, build};
use obento::copy::{Observer, Problem, Progress};
use obento::{Image, Registry};
use sha2::{Digest as _, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The number of members after which a build reports its progress.
const MEMBERS: usize = 64;

/// Returns a layer with the file `hello`, and empty files.
fn layer(hello: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in (0..MEMBERS).map(|at| (at.to_string(), "")).chain([("hello".into(), hello)]) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds a blob to the layout. Returns its path and its descriptor.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> (PathBuf, String) {
    let digest = digest(bytes);
    let path = layout.join("blobs/sha256").join(&digest);
    fs::write(&path, bytes).unwrap();
    (path, format!(r#"{{"mediaType":"{kind}","digest":"sha256:{digest}","size":{}}}"#, bytes.len()))
}

/// Creates the layout of an image. Returns the paths of its layers.
fn layout(layout: &Path, layers: &[Vec<u8>], configuration: Configuration) -> Vec<PathBuf> {
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let ids: Vec<String> = layers.iter().map(|layer| format!(r#""sha256:{}""#, digest(layer))).collect();
    let rootfs = match configuration {
        Configuration::WithDigests => {
            format!(r#"{{"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#, ids.join(","))
        }
        Configuration::Empty => "{}".into(),
    };
    let (_, config) = blob(layout, CONFIG, rootfs.as_bytes());
    let (paths, layers): (Vec<_>, Vec<_>) = layers.iter().map(|bytes| blob(layout, LAYER, bytes)).unzip();
    let manifest = format!(r#"{{"config":{config},"layers":[{}]}}"#, layers.join(","));
    let (_, manifest) = blob(layout, MANIFEST, manifest.as_bytes());
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(layout.join("index.json"), format!(r#"{{"manifests":[{manifest}]}}"#)).unwrap();
    paths
}

/// The configuration of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Configuration {
    /// It contains the digests of the uncompressed layers.
    WithDigests,
    Empty,
}

/// The moment of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    FirstLayer,
    BeforeTheCopy,
}

/// Replaces the bytes of a file at one moment of a build.
struct Intruder<'a> {
    moment: Moment,
    path: &'a Path,
    bytes: Option<Vec<u8>>,
}

impl Intruder<'_> {
    fn reached(&mut self, moment: Moment) {
        if moment == self.moment
            && let Some(bytes) = self.bytes.take()
        {
            fs::write(self.path, bytes).unwrap();
        }
    }
}

impl Observer for Intruder<'_> {
    fn progress(&mut self, _: &Progress<'_>) {
        self.reached(Moment::FirstLayer);
    }

    fn total(&mut self, _: u64, _: u64) {
        self.reached(Moment::BeforeTheCopy);
    }

    fn problem(&mut self, problem: &Problem) {
        panic!("{problem:?}");
    }
}

/// Builds an image from `layers` while the bytes of the last one are replaced at `moment`.
fn built(
    folder: &Path,
    layers: &[Vec<u8>],
    configuration: Configuration,
    moment: Moment,
) -> Result<(), BuildFailure> {
    let paths = layout(&folder.join("image"), layers, configuration);
    let mut intruder = Intruder { moment, path: &paths[layers.len() - 1], bytes: Some(layer("EVIL")) };
    let (sources, settings) = ([BuildSource::OciLayout(folder.join("image"))], BuildSettings::new("ext4"));
    let built = build(&folder.join("disk.img"), &sources, &settings, &Registry::default(), &mut intruder);
    assert_eq!(intruder.bytes, None, "the build did not reach {moment:?}");
    built.map(drop)
}

#[test]
fn a_layer_that_changes_after_its_verification_does_not_change_the_image() {
    for configuration in [Configuration::WithDigests, Configuration::Empty] {
        let folder = tempfile::tempdir().unwrap();
        built(folder.path(), &[layer("good")], configuration, Moment::BeforeTheCopy).unwrap();
        let volume = Image::open(folder.path().join("disk.img")).unwrap().volume(None).unwrap();
        assert_eq!(volume.read("/hello").unwrap(), b"good", "{configuration:?}");
    }
}

#[test]
fn a_layer_that_changes_before_it_is_read_fails_the_build() {
    for configuration in [Configuration::WithDigests, Configuration::Empty] {
        let folder = tempfile::tempdir().unwrap();
        let layers = [layer("first"), layer("good")];
        let failure = built(folder.path(), &layers, configuration, Moment::FirstLayer).unwrap_err();
        let reported = failure.to_string();
        assert!(reported.contains("the digest of the data is sha256:"), "{configuration:?}: {reported}");
        assert!(!folder.path().join("disk.img").exists());
    }
}
