//! Shared by the tests of this crate: fixtures, recorded outputs, and the one type that holds the tolerance.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use diffusion_gemma::weights::{Encoding, Inventory};
use diffusion_gemma::{LoadOptions, Model};

/// A checkpoint folder under `fixtures/`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// A fixture loaded for f32 compute on the CPU.
pub(crate) fn model(name: &str) -> Model {
    Model::load(&fixture(name), &LoadOptions::cpu(DType::F32)).unwrap()
}

/// How far two f32 computations of the same thing may be apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// Largest absolute difference of any element.
    pub(crate) max_abs: f64,
}

impl Tolerance {
    /// Parity with the recorded outputs, and of the fast path with the plain one.
    pub(crate) const F32: Self = Self { max_abs: 1e-4 };
}

/// Recorded outputs of the reference implementation, and which of them were compared.
pub(crate) struct Goldens {
    tensors: HashMap<String, Tensor>,
    errors: RefCell<BTreeMap<String, f64>>,
}

impl Goldens {
    pub(crate) fn load(name: &str) -> Self {
        let path = fixture(name).join("goldens.safetensors");
        Self {
            tensors: candle_core::safetensors::load(path, &Device::Cpu).unwrap(),
            errors: RefCell::default(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("no golden {name}"))
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        self.errors.borrow_mut().entry(name.to_owned()).or_insert(0.0);
        self.get(name).to_dtype(DType::U32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Records the error of one value under the golden's name.
    pub(crate) fn compare(&self, name: &str, found: &Tensor) {
        let error = max_abs(found, self.get(name));
        self.errors.borrow_mut().entry(name.to_owned()).and_modify(|e| *e = e.max(error)).or_insert(error);
    }

    /// The names compared so far.
    pub(crate) fn compared(&self) -> BTreeSet<String> {
        self.errors.borrow().keys().cloned().collect()
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.tensors.keys().cloned().collect()
    }

    /// Largest error of all comparisons.
    pub(crate) fn worst(&self) -> (String, f64) {
        let errors = self.errors.borrow();
        let worst = errors.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        (worst.0.clone(), *worst.1)
    }

    /// Prints every error (seen with `-- --nocapture`) and fails where one is out of tolerance.
    pub(crate) fn finish(&self, title: &str, tolerance: Tolerance) {
        println!("{title}: max abs error per golden");
        for (name, error) in self.errors.borrow().iter() {
            println!("  {name:32} {error:.2e}");
        }
        let (name, error) = self.worst();
        assert!(error <= tolerance.max_abs, "{title}: {name} is off by {error:e}");
    }
}

/// Largest absolute difference; shapes must agree up to leading ones. Non-finite differences count as infinite.
pub(crate) fn max_abs(found: &Tensor, wanted: &Tensor) -> f64 {
    let flat = |t: &Tensor| -> Vec<f64> {
        t.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    };
    assert_eq!(found.dims(), wanted.dims(), "shapes");
    flat(found)
        .into_iter()
        .zip(flat(wanted))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |worst, e| if e.is_nan() { f64::INFINITY } else { worst.max(e) })
}

/// Compares a checkpoint with the numbers it must stand for, to the bit; -0 and 0 are one number, which an encoder may write
/// either way. Gives how many tensors there are in each encoding.
pub(crate) fn assert_numbers(
    inventory: &Inventory,
    wanted: &BTreeMap<String, Vec<f32>>,
) -> BTreeMap<Encoding, usize> {
    let mut encodings = BTreeMap::new();
    for listing in inventory.tensors() {
        let (name, encoding) = (listing.name, listing.encoding);
        let wanted = wanted.get(name).unwrap_or_else(|| panic!("{name} is in the checkpoint alone"));
        let found = inventory.values(name).unwrap();
        assert_eq!(found.len(), wanted.len(), "{name}");
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0);
        if let Some(at) = found.iter().zip(wanted).position(|pair| !same(pair)) {
            panic!(
                "{name} as {}: number {at} is {} and should be {}",
                encoding.name(),
                found[at],
                wanted[at]
            );
        }
        assert_eq!(inventory.verify(name).unwrap(), wanted.len());
        *encodings.entry(encoding).or_insert(0) += 1;
    }
    assert_eq!(encodings.values().sum::<usize>(), wanted.len());
    encodings
}
