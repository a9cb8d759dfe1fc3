"""A linear-chain conditional random field over the tags of a sentence (Lafferty et al. 2001; arXiv 1603.01360, 2.2).

B batch, P places, K tags
"""

import torch
from torch import Tensor, nn


class LinearChain(nn.Module):
    """Scores of a first tag, of a last tag and of each pair of consecutive tags, added to the scores of places.

    The places of a sentence are the first ones of its row of `mask_BP`, bool.
    """

    # The scores of pairs must reach several nats within some hundred steps.
    optimizer_options = {"rate_factor": 100.0}

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.pairs_KK = nn.Parameter(torch.zeros(num_tags, num_tags))  # from row to column
        self.first_K = nn.Parameter(torch.zeros(num_tags))
        self.last_K = nn.Parameter(torch.zeros(num_tags))

    def loss(self, scores_BPK: Tensor, tags_BP: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the sum of -log p(tags) over the sentences, nats."""
        own_BP = scores_BPK.gather(2, tags_BP[..., None])[..., 0]
        pairs_BP = self.pairs_KK[tags_BP[:, :-1], tags_BP[:, 1:]]
        last_B1 = tags_BP.gather(1, (mask_BP.sum(dim=1, keepdim=True) - 1).clamp(min=0))
        ends_B = (self.first_K[tags_BP[:, 0]] + self.last_K[last_B1[:, 0]]) * mask_BP[:, 0]
        path = (own_BP * mask_BP).sum() + (pairs_BP * mask_BP[:, 1:]).sum() + ends_B.sum()
        return self.log_partition(scores_BPK, mask_BP).sum() - path

    def log_partition(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the logarithm of the sum of exp(score) over all paths, [B]; 0 for a row without places."""
        total_BK = self.first_K + scores_BPK[:, 0]
        for place in range(1, scores_BPK.shape[1]):
            next_BK = torch.logsumexp(total_BK[:, :, None] + self.pairs_KK, dim=1) + scores_BPK[:, place]
            total_BK = torch.where(mask_BP[:, place, None], next_BK, total_BK)
        return torch.logsumexp(total_BK + self.last_K, dim=1) * mask_BP[:, 0]

    def best(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the tags of the path with the highest score (Viterbi), int64 [B, P]; 0 where there is no place."""
        best_BK, pointers = self.first_K + scores_BPK[:, 0], list[Tensor]()
        for place in range(1, scores_BPK.shape[1]):
            next_BK, pointer_BK = (best_BK[:, :, None] + self.pairs_KK).max(dim=1)
            inside_B1 = mask_BP[:, place, None]
            best_BK = torch.where(inside_B1, next_BK + scores_BPK[:, place], best_BK)
            pointers.append(
                torch.where(inside_B1, pointer_BK, torch.arange(pointer_BK.shape[1], device=mask_BP.device))
            )
        tag_B1 = (best_BK + self.last_K).argmax(dim=1, keepdim=True)
        tags = [tag_B1]
        for pointer_BK in reversed(pointers):
            tag_B1 = pointer_BK.gather(1, tag_B1)
            tags.append(tag_B1)
        return torch.cat(tags[::-1], dim=1) * mask_BP

    def marginals(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the probability of each tag at each place over all paths, [B, P, K]; 0 where there is no place.

        It is the gradient of the log-partition with respect to the scores.
        """
        with torch.enable_grad():
            scores_BPK = scores_BPK.detach().requires_grad_()
            return torch.autograd.grad(self.log_partition(scores_BPK, mask_BP).sum(), scores_BPK)[0]
