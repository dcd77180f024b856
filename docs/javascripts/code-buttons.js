// Two things for screen readers and keyboards. The theme puts each copy button into a navigation landmark, and
// landmarks need names. And it takes the keyboard's focus from code blocks on devices without a mouse, and from wide tables everywhere.
let codeBlocks = 0;
new MutationObserver((changes) => {
  for (const { addedNodes, target } of changes) {
    for (const added of addedNodes)
      if (added.classList?.contains("md-code__nav")) added.setAttribute("aria-label", `Code block ${++codeBlocks}`);
      else if (added.classList?.contains("md-typeset__scrollwrap")) added.setAttribute("tabindex", "0");
    if (target.matches?.("pre > code:not([tabindex])")) target.setAttribute("tabindex", "0");
  }
}).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
