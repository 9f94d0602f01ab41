//! Weights from a Hugging Face checkpoint folder: one or several safetensors files, mapped, converted as they are read.

use crate::error::{Error, Result};
use crate::op::DType;
use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An opened checkpoint: which file holds which tensor.
pub struct Checkpoint {
    folder: PathBuf,
    files: Vec<(PathBuf, Mmap)>,
    /// Tensor name to index of its file.
    tensors: BTreeMap<String, usize>,
}

impl Checkpoint {
    /// Opens `model.safetensors`, or every file that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// Missing files, a truncated or malformed header; the message names the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let index = folder.join("model.safetensors.index.json");
        let mut names: Vec<String> = if index.exists() {
            let text = std::fs::read_to_string(&index)?;
            let root: serde_json::Value = serde_json::from_str(&text)
                .map_err(|e| Error::usage(format!("not valid JSON: {e}")).at(index.display()))?;
            let map = root["weight_map"].as_object().ok_or_else(|| {
                Error::usage("has no weight_map").at(index.display()).try_next("download the checkpoint again")
            })?;
            map.values().filter_map(|v| v.as_str().map(str::to_string)).collect()
        } else {
            vec!["model.safetensors".into()]
        };
        names.sort();
        names.dedup();
        let mut this = Self { folder: folder.to_path_buf(), files: Vec::new(), tensors: BTreeMap::new() };
        for name in names {
            // A name with a path in it could leave the folder.
            let path = folder.join(Path::new(&name).file_name().unwrap_or_default());
            let file = File::open(&path).map_err(|e| {
                Error::usage(format!("cannot open {}: {e}", path.display()))
                    .try_next("a checkpoint folder with model.safetensors, or a model name for random weights")
            })?;
            // SAFETY: the mapping is read-only; a file that shrinks meanwhile raises SIGBUS, as for every mapped reader.
            let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::usage(e.to_string()).at(path.display()))?;
            let tensors = SafeTensors::deserialize(&map).map_err(|e| {
                Error::usage(format!("{} is truncated or malformed: {e}", path.display()))
                    .try_next("compare its size with the published one and download it again")
            })?;
            for t in tensors.names() {
                this.tensors.insert(t.to_string(), this.files.len());
            }
            this.files.push((path, map));
        }
        Ok(this)
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Calls `f` with one tensor.
    fn with<R>(&self, name: &str, f: impl FnOnce(&TensorView<'_>) -> Result<R>) -> Result<R> {
        let &file = self.tensors.get(name).ok_or_else(|| {
            Error::usage(format!("the checkpoint has no tensor {name}"))
                .try_next("a checkpoint whose config.json belongs to it")
        })?;
        let (path, map) = &self.files[file];
        let parsed = SafeTensors::deserialize(map).map_err(|e| Error::usage(e.to_string()).at(path.display()))?;
        let t = parsed.tensor(name).map_err(|e| Error::usage(e.to_string()).at(path.display()))?;
        f(&t)
    }

    /// A tensor of 32-bit integers, and its dimensions.
    ///
    /// # Errors
    /// A tensor that is not there or has another type.
    pub fn words(&self, name: &str) -> Result<(Vec<u32>, Vec<u64>)> {
        self.with(name, |t| match t.dtype() {
            Dtype::I32 | Dtype::U32 => {
                let words = t.data().chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
                Ok((words, t.shape().iter().map(|d| *d as u64).collect()))
            }
            other => Err(Error::usage(format!("{name} has type {other:?}; i32 expected"))),
        })
    }

    /// A tensor of floats, and its dimensions.
    ///
    /// # Errors
    /// A tensor that is not there or has another type.
    pub fn floats(&self, name: &str) -> Result<(Vec<f32>, Vec<u64>)> {
        self.with(name, |t| {
            let mut bytes = Vec::new();
            convert(t.dtype(), t.data(), DType::F32, &mut bytes)
                .ok_or_else(|| Error::usage(format!("{name} has type {:?}; bf16, f16 or f32 expected", t.dtype())))?;
            let floats = bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            Ok((floats, t.shape().iter().map(|d| *d as u64).collect()))
        })
    }

    /// The tensors of a `+` joined list, one after the other (rows stacked), as elements of `dtype`.
    ///
    /// # Errors
    /// A tensor that is not there, a type that is not a float, or a total other than `len` elements.
    pub fn read(&self, names: &str, dtype: DType, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity((len * dtype.size()) as usize);
        for name in names.split('+') {
            self.with(name, |t| {
                convert(t.dtype(), t.data(), dtype, &mut bytes)
                    .ok_or_else(|| Error::usage(format!("{name} has type {:?}; bf16, f16 or f32 expected", t.dtype())))
            })?;
        }
        if bytes.len() as u64 != len * dtype.size() {
            return Err(Error::usage(format!(
                "{names} holds {} elements, the config asks for {len}",
                bytes.len() as u64 / dtype.size()
            )));
        }
        Ok(bytes)
    }
}

/// Appends `data` converted to `to`; `None` for types with no conversion.
fn convert(from: Dtype, data: &[u8], to: DType, out: &mut Vec<u8>) -> Option<()> {
    let same = matches!((from, to), (Dtype::BF16, DType::Bf16) | (Dtype::F16, DType::F16) | (Dtype::F32, DType::F32));
    if same {
        out.extend_from_slice(data);
        return Some(());
    }
    let mut put = |v: f32| match to {
        DType::Bf16 => out.extend(half::bf16::from_f32(v).to_le_bytes()),
        DType::F16 => out.extend(half::f16::from_f32(v).to_le_bytes()),
        _ => out.extend(v.to_le_bytes()),
    };
    match from {
        Dtype::BF16 => data.chunks_exact(2).for_each(|c| put(half::bf16::from_le_bytes([c[0], c[1]]).to_f32())),
        Dtype::F16 => data.chunks_exact(2).for_each(|c| put(half::f16::from_le_bytes([c[0], c[1]]).to_f32())),
        Dtype::F32 => data.chunks_exact(4).for_each(|c| put(f32::from_le_bytes([c[0], c[1], c[2], c[3]]))),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{TensorView, serialize};

    fn folder(bytes: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        dir
    }

    fn sample() -> Vec<u8> {
        let a: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let b: Vec<u8> = half::bf16::from_f32(3.0).to_le_bytes().to_vec();
        let tensors = [
            ("a", TensorView::new(Dtype::F32, vec![2], &a).unwrap()),
            ("b", TensorView::new(Dtype::BF16, vec![1], &b).unwrap()),
        ];
        serialize(tensors, None).unwrap()
    }

    #[test]
    fn stacks_and_converts() {
        let dir = folder(&sample());
        let c = Checkpoint::open(dir.path()).unwrap();
        let bytes = c.read("a+b", DType::F16, 3).unwrap();
        let values: Vec<f32> = bytes.chunks_exact(2).map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f32()).collect();
        assert_eq!(values, [1.0, 2.0, 3.0]);
        assert!(c.read("a", DType::Bf16, 3).unwrap_err().what.contains("2 elements"));
        assert!(c.read("zz", DType::Bf16, 1).unwrap_err().what.contains("zz"));
    }

    #[test]
    fn truncated_file_is_named() {
        let whole = sample();
        for cut in [0, 4, 20, whole.len() - 1] {
            let dir = folder(&whole[..cut]);
            let e = Checkpoint::open(dir.path()).err().unwrap_or_else(|| panic!("{cut} bytes were accepted"));
            assert!(e.what.contains("model.safetensors"), "{e}");
        }
    }
}
