// The theme gives its search dialog no name, and lets nobody scroll wide tables by keys.
document.querySelector('.md-search')?.setAttribute('aria-label', 'Search');
const reach = () => {
  for (const box of document.querySelectorAll('.md-typeset__scrollwrap:not([tabindex])')) {
    box.tabIndex = 0;
    box.setAttribute('role', 'region');
    box.setAttribute('aria-label', 'Table');
  }
};
reach();
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
