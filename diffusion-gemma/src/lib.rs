//! diffusion-gemma
