"""Muon for the matrices: momentum, then the nearest orthogonal matrix by a Newton-Schulz iteration (same shapes
in one batch)."""
import torch

MATMUL = torch.bfloat16  # five steps are exact enough in either; train.py takes the one that is fast here


@torch.no_grad()
def orthogonal(g, steps=5):
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    flip = x.size(-2) > x.size(-1)
    x = (x.mT if flip else x).to(MATMUL).contiguous()
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if flip else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=.95, wd=.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, wd=wd))

    @torch.no_grad()
    def step(self):
        for grp in self.param_groups:
            lr, mu, wd = grp["lr"], grp["momentum"], grp["wd"]
            shapes = {}
            for p in grp["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for ps in shapes.values():
                for p in ps:
                    self.state[p].setdefault("m", torch.zeros_like(p)).mul_(mu).add_(p.grad)
                u = orthogonal(torch.stack([p.grad + mu * self.state[p]["m"] for p in ps]))
                for p, d in zip(ps, u):
                    p.mul_(1 - lr * wd).add_(d, alpha=-lr * max(1, p.size(-2) / p.size(-1)) ** .5)
