//! The rules of the architecture that are easy to get wrong, as data.
//!
//! The plain path obeys them one by one; `tests/parity.rs` breaks one at a time and must see the comparison fail.

/// What the architecture does at each place that is easy to get wrong. [`Rules::default`] is the model; any other
/// value is a wrong model, used to prove that the parity tests can fail.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // each one is an independent rule, and tests flip them one by one
pub struct Rules {
    /// Added to every norm weight: 0 here, 1 in earlier Gemma models.
    pub norm_weight_offset: f64,
    /// The encoder multiplies by its own layer scalars, the decoder by its own.
    pub own_layer_scalars: bool,
    /// The layer scalar multiplies the residual as well.
    pub scalar_covers_residual: bool,
    /// On full layers V is the key projection before its norm and rotation.
    pub value_from_raw_key: bool,
    /// V gets a scale-free norm.
    pub value_norm: bool,
    /// Attention scores are not divided by √head_dim.
    pub unscaled_attention: bool,
    /// The router reads the residual, not the normed input of the experts.
    pub router_reads_residual: bool,
    /// The K chosen weights are scaled to sum to one before the per-expert scale.
    pub renormalised_router: bool,
    /// Every expert has a scale of its own.
    pub per_expert_scale: bool,
    /// The dense branch runs beside the experts.
    pub dense_branch: bool,
    /// The canvas embedding passes a scale-free norm, with or without self-conditioning.
    pub canvas_input_norm: bool,
    /// The prompt embedding does not.
    pub prompt_input_norm: bool,
    /// The canvas sees every canvas row, later ones too.
    pub bidirectional_canvas: bool,
    /// Canvas rows see the last W−1 cached keys of a sliding layer, whatever their own distance.
    pub canvas_window: bool,
    /// Prompt rows of a sliding layer see W keys, themselves included.
    pub prompt_window: bool,
    /// The soft embedding of self-conditioning is scaled by √H.
    pub scaled_soft_embedding: bool,
    /// Logits are soft-capped.
    pub soft_cap: bool,
    /// Exponents of the rope of full layers run over the whole head (false: over the rotating part).
    pub rope_over_whole_head: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            norm_weight_offset: 0.0,
            own_layer_scalars: true,
            scalar_covers_residual: true,
            value_from_raw_key: true,
            value_norm: true,
            unscaled_attention: true,
            router_reads_residual: true,
            renormalised_router: true,
            per_expert_scale: true,
            dense_branch: true,
            canvas_input_norm: true,
            prompt_input_norm: false,
            bidirectional_canvas: true,
            canvas_window: true,
            prompt_window: true,
            scaled_soft_embedding: true,
            soft_cap: true,
            rope_over_whole_head: true,
        }
    }
}
